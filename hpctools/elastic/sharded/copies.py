"""Every so many steps each rank's parts are copied, also to another node: a node may be lost.

The state of before the loss is then put together from the copies of all, without storage. A rank then holds
its parts three times: as they are, as they were, and those of one other rank.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from hpctools.elastic.containers import mapped
from hpctools.elastic.group import Group, await_all
from hpctools.elastic.sharded import collectives, layout
from hpctools.elastic.sharded.moving import PartSet

COPY = 41


class Copies:
    """The copies that one rank holds: the last ones, and those before until everybody has made the last ones.

    Args:
        every: steps from one copy to the next; 0: none are made.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._older: tuple[PartSet, ...] = ()
        self._newer: tuple[PartSet, ...] = ()

    @property
    def held(self) -> tuple[PartSet, ...]:
        """All of them, the newest first."""
        return (*self._newer, *self._older)

    def is_due(self, step: int, world: int) -> bool:
        """Whether the state after so many steps is copied; the same on all ranks."""
        return self._every > 0 and world > 1 and step > 0 and step % self._every == 0

    def keep(self, made: tuple[PartSet, ...]) -> None:
        """These were made; the ones before are kept until `settled`."""
        self._older, self._newer = self._newer or self._older, made

    def settled(self) -> None:
        """Everybody has come past the last copy, so everybody has made it."""
        self._older = ()

    def forget_after(self, step: int) -> None:
        """The training goes back: copies of more completed steps are void."""
        self._older = tuple(each for each in self._older if each.version.step <= step)
        self._newer = tuple(each for each in self._newer if each.version.step <= step)


def exchange_copies(group: Group, own: PartSet, node: str) -> tuple[PartSet, ...]:
    """Send a copy of our parts to a rank on another node, where there is one; blocks.

    Args:
        own: tensors that nobody changes meanwhile.
        node: ours, by its name.

    Returns:
        Our own copy, with its unsharded state, and that of the rank whose copies we keep.

    Raises:
        RuntimeError: a peer is gone.
    """
    message = json.dumps([node, layout.encode_parts(own.parts)], separators=(",", ":")).encode()
    told = [json.loads(each) for each in collectives.exchange_bytes(group, message)]
    behind = keepers([each[0] for each in told])
    before, keeper = behind.index(group.rank), behind[group.rank]
    parts = layout.decode_parts(told[before][1])
    tensors = {name: torch.empty(part.sizes, dtype=part.torch_dtype) for name, part in parts.items()}
    sent = [each for each in own.tensors.values() if each.numel()]
    received = [each for each in tensors.values() if each.numel()]
    works = [group.receive(each.view(-1).view(torch.uint8), before, COPY) for each in received]
    works += [group.send(each.reshape(-1).view(torch.uint8), keeper, COPY) for each in sent]
    await_all(works)
    return own, PartSet(own.version, parts, tensors)


def keepers(nodes: Sequence[str]) -> list[int]:
    """Which rank keeps the copies of each; every rank keeps those of one.

    With the ranks of each node in a row, it is the one that comes as many places later as the fullest node
    has ranks: on another node, unless that one has more than half of all ranks.

    Args:
        nodes: of each rank.
    """
    ranks = sorted(range(len(nodes)), key=lambda rank: (nodes.index(nodes[rank]), rank))
    fullest = max(Counter(nodes).values())
    step = fullest if fullest < len(nodes) else 1
    keeper = [0] * len(nodes)
    for at, rank in enumerate(ranks):
        keeper[rank] = ranks[(at + step) % len(nodes)]
    return keeper


def copy_of(living: PartSet) -> PartSet:
    """The state in memory of its own, on the CPU."""
    tensors = {name: each.detach().to("cpu", copy=True).contiguous() for name, each in living.tensors.items()}
    return PartSet(living.version, living.parts, tensors, deep_copied(living.plain))


def deep_copied(value: Any) -> Any:
    """Containers and tensors copied, plain values as they are."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return mapped(value, lambda each, _: deep_copied(each))

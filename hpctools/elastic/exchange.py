"""The gradient exchange of one step, which also agrees on when to switch to the next generation.

Every rank owns a segment of the vector. It gets the other ranks' subtree sums of that segment, finishes the
tree (`reduction`), and sends the sum to everyone: about twice the vector's size a rank, as in a ring.

With its gradients each rank sends to each other a header: the highest generation that it is ready to switch
to, and its step. As all ranks see the headers of all, all take the same decision; and as headers are read
before anything is added up, a rank that is in another step is known before its gradients are mixed with ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from hpctools.elastic.group import Group, Work, await_all
from hpctools.elastic.reduction import Node, Share, neighbours, total

HEADER, PART, SUM = 1, 2, 3


@dataclass(frozen=True)
class Plan:
    """What all ranks know about the exchange before it begins.

    Attributes:
        step: number of the step.
        shards: its virtual shards.
        length, dtype: of the vectors.
        ready_for: the highest generation that we are ready to switch to; each rank has its own.
        share: which nodes of the tree are whose.
    """

    step: int
    shards: int
    length: int
    dtype: torch.dtype
    ready_for: int
    share: Share = neighbours


@dataclass(frozen=True)
class Exchanged:
    """What every rank has after the exchange.

    Attributes:
        vector: the sum over all shards, shape (length,).
        agreed: the highest generation that all ranks are ready to switch to.
    """

    vector: torch.Tensor
    agreed: int


def exchange(group: Group, sums: Mapping[Node, torch.Tensor], plan: Plan) -> Exchanged:
    """Add up the shards of all ranks; blocks.

    Args:
        sums: for each node of our share, the sum of its shards, shape (length,); consumed. Empty when the
            step has fewer shards than ranks and we have none.

    Raises:
        RuntimeError: a peer is gone, or is in another step.
    """
    if group.world == 1:
        return Exchanged(sums[(0, plan.shards)], plan.ready_for)
    headers, leading = _begin_headers(group, plan)
    known, works = _begin_parts(group, sums, plan)
    await_all(leading)
    agreed = _agreed(headers, plan)
    await_all(works)
    mine = total((0, plan.shards), known, lambda left, right: left.add_(right))
    return Exchanged(_gather(group, mine, plan), agreed)


def _begin_headers(group: Group, plan: Plan) -> tuple[dict[int, torch.Tensor], list[Work]]:
    """All ranks' headers by rank, ours among them, and what has to end before they can be read."""
    own = torch.tensor([plan.ready_for, plan.step], dtype=torch.int64)
    headers = {rank: torch.empty_like(own) for rank in group.others}
    works = [group.receive(header, rank, HEADER) for rank, header in headers.items()]
    works += [group.send(own, rank, HEADER) for rank in group.others]
    return {**headers, group.rank: own}, works


def _agreed(headers: Mapping[int, torch.Tensor], plan: Plan) -> int:
    for rank, header in headers.items():
        if int(header[1]) != plan.step:
            raise RuntimeError(f"rank {rank} is in step {int(header[1])}, we are in step {plan.step}")
    return min(int(header[0]) for header in headers.values())


def _begin_parts(
    group: Group, sums: Mapping[Node, torch.Tensor], plan: Plan
) -> tuple[dict[Node, torch.Tensor], list[Work]]:
    """The segment that we own of all ranks' nodes, and what has to end before it is there.

    A segment's length does not depend on the step: what another one's rank sends fits, and is never read.
    """
    low, high = _segment(group.rank, group.world, plan.length)
    known = {node: vector[low:high] for node, vector in sums.items()}
    works = []
    for rank in group.others:
        for node in plan.share(rank, group.world, plan.shards):
            known[node] = group.scratch(node, high - low, plan.dtype)
            works.append(group.receive(known[node], rank, PART))
    for rank in group.others:
        first, last = _segment(rank, group.world, plan.length)
        works += [group.send(sums[node][first:last], rank, PART) for node in sorted(sums)]
    return known, works


def _gather(group: Group, mine: torch.Tensor, plan: Plan) -> torch.Tensor:
    """All segments, from their owners."""
    vector = group.scratch("sum", plan.length, plan.dtype)
    works = []
    for rank in group.others:
        low, high = _segment(rank, group.world, plan.length)
        works.append(group.receive(vector[low:high], rank, SUM))
    works += [group.send(mine, rank, SUM) for rank in group.others]
    low, high = _segment(group.rank, group.world, plan.length)
    vector[low:high] = mine
    await_all(works)
    return vector


def _segment(rank: int, world: int, length: int) -> Node:
    return rank * length // world, (rank + 1) * length // world

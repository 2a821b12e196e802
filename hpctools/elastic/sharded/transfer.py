"""Moves pieces of tensors between the ranks of a group: each once, without a copy where it can.

Large pieces travel by themselves, without a copy when their rows lie together in memory; small ones travel
packed, one message for each pair of ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from hpctools.elastic.group import Group, Work, await_all
from hpctools.elastic.sharded.layout import Piece

LARGE, PACKED = 31, 32
LARGE_BYTES = 1 << 16

Sets = Sequence[Mapping[str, torch.Tensor]]
"""Tensors by name, for each set of parts that a rank holds."""


@dataclass(frozen=True)
class Moved:
    """What a rank got.

    Attributes:
        received: bytes from other ranks.
        kept: bytes that it had itself.
    """

    received: int = 0
    kept: int = 0


def transfer(group: Group, plan: Sequence[Piece], held: Sets, wanted: Mapping[str, torch.Tensor]) -> Moved:
    """Carry out our side of a plan that all ranks of the group have; blocks.

    Args:
        held: our parts, as the plan numbers them; on the CPU or not.
        wanted: our parts of the next layout, which are written.

    Raises:
        RuntimeError: a peer is gone.
    """
    incoming, outgoing = _by_peer(plan, group.rank)
    receiving = [_Incoming(group, rank, pieces, wanted) for rank, pieces in incoming.items()]
    works = [work for each in receiving for work in each.works]
    for rank in group.others:
        works += _send(group, rank, outgoing.get(rank, []), held)
    own = [each for each in plan if each.source == each.target == group.rank]
    kept = copy_pieces(own, lambda piece: held[piece.held][piece.name], wanted)
    await_all(works)
    return Moved(sum(each.finish() for each in receiving), kept)


def _by_peer(plan: Sequence[Piece], own: int) -> tuple[dict[int, list[Piece]], dict[int, list[Piece]]]:
    incoming: dict[int, list[Piece]] = defaultdict(list)
    outgoing: dict[int, list[Piece]] = defaultdict(list)
    for piece in plan:
        if piece.source != piece.target:
            if piece.target == own:
                incoming[piece.source].append(piece)
            elif piece.source == own:
                outgoing[piece.target].append(piece)
    return incoming, outgoing


def copy_pieces(
    plan: Sequence[Piece], source: Callable[[Piece], torch.Tensor], wanted: Mapping[str, torch.Tensor]
) -> int:
    """Copy pieces that are in our reach; returns how many bytes."""
    size = 0
    for piece in plan:
        target = _box(wanted[piece.name], piece.target_offsets, piece.sizes)
        target.copy_(_box(source(piece), piece.source_offsets, piece.sizes))
        size += _size(target)
    return size


def _send(group: Group, to: int, pieces: Sequence[Piece], held: Sets) -> list[Work]:
    boxes = [_bytes(_box(held[each.held][each.name], each.source_offsets, each.sizes)) for each in pieces]
    works = [group.send(box, to, LARGE) for box in boxes if box.numel() >= LARGE_BYTES]
    small = [box for box in boxes if box.numel() < LARGE_BYTES]
    if small:
        works.append(group.send(torch.cat(small), to, PACKED))
    return works


class _Incoming:
    """What one peer sends us."""

    def __init__(
        self, group: Group, sender: int, pieces: Sequence[Piece], wanted: Mapping[str, torch.Tensor]
    ) -> None:
        targets = [_box(wanted[each.name], each.target_offsets, each.sizes) for each in pieces]
        large = [each for each in targets if _size(each) >= LARGE_BYTES]
        self._small = [each for each in targets if _size(each) < LARGE_BYTES]
        # Where a box does not lie together, or on a GPU, it is received elsewhere first.
        self._through = [(each, _landing(each)) for each in large]
        self._packed = torch.empty(sum(map(_size, self._small)), dtype=torch.uint8)
        self.works: list[Work] = [group.receive(_bytes(into), sender, LARGE) for _, into in self._through]
        if self._small:
            self.works.append(group.receive(self._packed, sender, PACKED))

    def finish(self) -> int:
        """Put everything where it belongs; returns how many bytes came."""
        for target, landed in self._through:
            if landed is not target:
                target.copy_(landed)
        sizes = [_size(each) for each in self._small]
        for target, data in zip(self._small, torch.split(self._packed, sizes), strict=True):
            target.copy_(_typed(data, target))
        return sum(sizes) + sum(_size(each) for each, _ in self._through)


def _box(tensor: torch.Tensor, offsets: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    for dimension, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        tensor = tensor.narrow(dimension, offset, size)
    return tensor


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu().contiguous().view(-1).view(torch.uint8)


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.itemsize


def _landing(target: torch.Tensor) -> torch.Tensor:
    if target.is_contiguous() and target.device.type == "cpu":
        return target
    return torch.empty(target.shape, dtype=target.dtype)


def _typed(data: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return data.clone().view(like.dtype).view(like.shape)

"""Who holds which part of which tensor, and what has to travel to whom: pure planning on plain data.

The arithmetic of overlapping parts is that of torch Distributed Checkpoint's load planner
(`create_read_items_for_chunk_list`): what ranks hold are its stored chunks, what they want are its reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import lru_cache

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

Numbers = tuple[int, ...]
OF_NOBODY = -1


@dataclass(frozen=True)
class Part:
    """A box of a tensor.

    Attributes:
        shape: of the whole tensor.
        dtype: without the `torch.`, for example `float32`.
        offsets: where the box begins.
        sizes: its extent; some are 0 when it is empty.
    """

    shape: Numbers
    dtype: str
    offsets: Numbers
    sizes: Numbers

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.sizes)

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.elements * self.torch_dtype.itemsize

    @property
    def torch_dtype(self) -> torch.dtype:
        """The type of its elements."""
        kind: torch.dtype = getattr(torch, self.dtype)
        return kind


@dataclass(frozen=True)
class Version:
    """Which state parts belong to: only parts of the same version make a whole.

    Attributes:
        step: completed steps that it is the result of.
        origin: the generation in which it was cut into parts.
        epoch: of the step that comes next; at the end of streams a later one may follow the same step.
    """

    step: int
    origin: int
    epoch: int = 0


Parts = Mapping[str, Part]


@dataclass(frozen=True)
class Survey:
    """What one rank tells the others before the state moves.

    Attributes:
        held: parts that it holds, by version; of one version there may be several sets (its own, and
            copies of other ranks' parts).
        plain: versions whose unsharded state it holds.
        checkpoint: step of the newest whole checkpoint; -1: none, or another rank looks for it.
        known: the furthest step that it knows a checkpoint may be of.
        looks: it can look for checkpoints.
        reached: completed steps that its state was last the result of, whatever it holds of it now; 0: it
            never had one, or one at the beginning, be it behind batches that are left out there.
        skipped: numbers of the steps whose batches are left out.
        began: with streams, epochs and after how many steps each of them began.
    """

    held: tuple[tuple[Version, Parts], ...] = ()
    plain: tuple[Version, ...] = ()
    checkpoint: int = -1
    known: int = -1
    looks: bool = False
    reached: int = 0
    skipped: tuple[int, ...] = ()
    began: tuple[Numbers, ...] = ()

    def encode(self) -> bytes:
        """As bytes for the others."""
        held = [[*astuple(each), encode_parts(parts)] for each, parts in self.held]
        plain = [astuple(each) for each in self.plain]
        numbers = [self.checkpoint, self.known, self.looks, self.reached]
        # An earlier release takes those for versions of which nobody holds anything.
        plain += [(step, OF_NOBODY, epoch) for epoch, step in self.began]
        return json.dumps([held, plain, *numbers, self.skipped], separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Survey:
        """The inverse of `encode`."""
        held, plain, checkpoint, known, looks, reached, skipped = json.loads(data)
        sets = tuple((Version(*place), decode_parts(parts)) for *place, parts in held)
        whole = tuple(Version(*each) for each in plain if each[1] != OF_NOBODY)
        began = tuple((epoch, step) for step, origin, epoch in plain if origin == OF_NOBODY)
        return cls(sets, whole, checkpoint, known, looks, reached, _numbers(skipped), began)


@dataclass(frozen=True)
class Piece:
    """A box that one rank has and another one wants.

    Attributes:
        name: of the tensor.
        source, target: ranks; may be the same.
        held: which of the source's sets of parts it is in.
        source_offsets: where it begins in the source's part.
        target_offsets: where it begins in the target's part.
        sizes: its extent.
    """

    name: str
    source: int
    held: int
    target: int
    source_offsets: Numbers
    target_offsets: Numbers
    sizes: Numbers


@dataclass(frozen=True)
class Holders:
    """Who holds a version.

    Attributes:
        parts: by tensor: (rank, number of its set, part); empty parts are left out.
        shapes: by tensor, an example part.
    """

    parts: dict[str, list[tuple[int, int, Part]]] = field(default_factory=dict)
    examples: dict[str, Part] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether every element of every tensor is held by somebody."""
        return bool(self.examples) and all(
            sum(part.elements for _, _, part in _distinct(self.parts.get(name, ()))) == math.prod(part.shape)
            for name, part in self.examples.items()
        )

    @property
    def bytes(self) -> int:
        """Size of the whole state."""
        return sum(math.prod(each.shape) * each.torch_dtype.itemsize for each in self.examples.values())


def versions(surveys: Sequence[Survey]) -> list[Version]:
    """All that anybody holds, the furthest first."""
    found = {version for survey in surveys for version, _ in survey.held}
    return sorted(found, key=lambda each: (each.step, each.epoch, each.origin), reverse=True)


def holders_of(version: Version, surveys: Sequence[Survey]) -> Holders:
    """Who holds what of a version."""
    holders = Holders()
    for rank, survey in enumerate(surveys):
        for number, (each, parts) in enumerate(survey.held):
            if each == version:
                _add(holders, rank, number, parts)
    return holders


def furthest_whole(surveys: Sequence[Survey]) -> Version | None:
    """The furthest version of which nothing is missing, its unsharded state included."""
    for version in versions(surveys):
        has_plain = any(version in survey.plain for survey in surveys)
        if has_plain and holders_of(version, surveys).is_whole:
            return version
    return None


def pieces(holders: Holders, wanted: Sequence[Parts]) -> list[Piece]:
    """What has to move, so that every rank has what it wants; every wanted byte is in one piece.

    Args:
        wanted: by rank.
    """
    return [
        piece
        for target, parts in enumerate(wanted)
        for name in sorted(parts)
        for piece in _pieces_of(name, holders.parts.get(name, []), target, parts[name])
    ]


def _pieces_of(
    name: str, held: Sequence[tuple[int, int, Part]], target: int, wanted: Part
) -> Iterator[Piece]:
    if wanted.elements == 0:
        return
    chosen = _distinct(held, prefer=target)
    boxes = tuple((part.offsets, part.sizes) for _, _, part in chosen)
    for place, source_offsets, target_offsets, sizes in _overlaps(
        wanted.shape, boxes, (wanted.offsets, wanted.sizes)
    ):
        rank, number, _ = chosen[place]
        yield Piece(name, rank, number, target, source_offsets, target_offsets, sizes)


@lru_cache(maxsize=4096)
def _overlaps(
    shape: Numbers, boxes: tuple[tuple[Numbers, Numbers], ...], wanted: tuple[Numbers, Numbers]
) -> tuple[tuple[int, Numbers, Numbers, Numbers], ...]:
    """Where boxes overlap with the wanted one; a parameter and its moments ask the same question."""
    chunks = [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes in boxes]
    stored = TensorStorageMetadata(TensorProperties(), torch.Size(shape), chunks)
    reads = create_read_items_for_chunk_list("", stored, [ChunkStorageMetadata(*map(torch.Size, wanted))])
    places = {offsets: place for place, (offsets, _) in enumerate(boxes)}
    return tuple(
        (
            places[tuple(read.storage_index.offset or ())],
            tuple(read.storage_offsets),
            tuple(read.dest_offsets),
            tuple(read.lengths),
        )
        for read in reads
    )


def _distinct(held: Sequence[tuple[int, int, Part]], prefer: int = -1) -> list[tuple[int, int, Part]]:
    """One holder of each part: the preferred rank where it is one, else they take turns."""
    by_place: dict[Numbers, list[tuple[int, int, Part]]] = {}
    for each in held:
        by_place.setdefault(each[2].offsets, []).append(each)
    chosen = []
    for turn, offsets in enumerate(sorted(by_place)):
        holders = by_place[offsets]
        own = [each for each in holders if each[0] == prefer]
        chosen.append(own[0] if own else holders[(turn + max(prefer, 0)) % len(holders)])
    return chosen


def _add(holders: Holders, rank: int, number: int, parts: Parts) -> None:
    for name, part in parts.items():
        holders.examples.setdefault(name, part)
        if part.elements:
            holders.parts.setdefault(name, []).append((rank, number, part))


def encode_message(parts: Parts) -> bytes:
    """Parts as bytes for the others."""
    return json.dumps(encode_parts(parts), separators=(",", ":")).encode()


def decode_message(data: bytes) -> dict[str, Part]:
    """The inverse of `encode_message`."""
    return decode_parts(json.loads(data))


def encode_parts(parts: Parts) -> list[list[object]]:
    """Parts as JSON values."""
    return [[name, each.shape, each.dtype, each.offsets, each.sizes] for name, each in parts.items()]


def decode_parts(values: Sequence[Sequence[object]]) -> dict[str, Part]:
    """The inverse of `encode_parts`."""
    return {str(name): Part(_numbers(a), str(b), _numbers(c), _numbers(d)) for name, a, b, c, d in values}


def _numbers(values: object) -> Numbers:
    return tuple(int(each) for each in values)  # type: ignore[attr-defined]

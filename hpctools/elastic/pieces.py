"""The parts of a global batch that the loop is fed, and which of them are a worker's.

In exact mode a piece is a virtual shard. In fast mode it is a worker's whole block of the batch, or as much
of it as the loop wants at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from hpctools.elastic.reduction import Share, block, neighbours
from hpctools.elastic.sampling import Cursor, Sampling, StreamSampling


class Seated(Protocol):
    """A worker's place in a group; groups are."""

    @property
    def number(self) -> int:
        """The group's generation."""
        ...

    @property
    def rank(self) -> int:
        """Our place."""
        ...

    @property
    def world(self) -> int:
        """How many there are."""
        ...


@dataclass(frozen=True)
class Piece:
    """What the loop is fed at once.

    Attributes:
        cursor: the step that it belongs to.
        number: names it within the step, and with it its random numbers.
        low, high: the places within the epoch's order that it takes.
        samples: how many of them count.
        is_practice: it is fed without effect, to stay in step with the others.
    """

    cursor: Cursor
    number: int
    low: int
    high: int
    samples: int
    is_practice: bool = False

    @property
    def is_fed(self) -> bool:
        """Whether the loop sees it; not when its stream had no samples left."""
        return self.samples > 0 or self.is_practice


Cut = Callable[[Cursor, int, int], list[Piece]]
"""Cuts a step into the pieces of one worker: cursor, rank, world. Never empty."""

Fill = Callable[[list[Piece], int], list[Piece]]
"""Adds practice to a worker's pieces of streams, of which some had no samples left: pieces, world."""


def by_shards(sampling: Sampling | StreamSampling, share: Share = neighbours) -> Cut:
    """A worker's virtual shards, one by one.

    Args:
        share: which shards are whose.
    """

    def cut(cursor: Cursor, rank: int, world: int) -> list[Piece]:
        shards = sampling.shards_of(cursor)
        ours = [shard for node in share(rank, world, shards) for shard in range(*node)]
        # With more workers than samples some have no shard; they do one without effect, to stay in step.
        return [_shard(sampling, cursor, shard) for shard in ours] or [practice(sampling, cursor, shards)]

    return cut


def by_blocks(sampling: Sampling, microbatch: int | None) -> Cut:
    """A worker's block of the batch, in pieces of `microbatch` samples at most."""

    def cut(cursor: Cursor, rank: int, world: int) -> list[Piece]:
        first, last = sampling.batch(cursor)
        low, high = (first + place for place in block(rank, world, last - first))
        size = microbatch or max(1, high - low)
        starts = range(low, high, size)
        pieces = [
            Piece(cursor, start - first, start, min(start + size, high), min(start + size, high) - start)
            for start in starts
        ]
        return pieces or [practice(sampling, cursor, last - first)]

    return cut


def one_at_least(pieces: list[Piece], world: int) -> list[Piece]:
    """A piece without effect where all streams have ended, to come to the end of the step with the others."""
    if any(piece.is_fed for piece in pieces):
        return pieces
    return [*pieces, replace(pieces[0], samples=0, is_practice=True)]


def practice(sampling: Sampling | StreamSampling, cursor: Cursor, number: int) -> Piece:
    """A piece without effect, of the size of the step's last shard."""
    low, high = sampling.slice_of(cursor, sampling.shards_of(cursor) - 1)
    return Piece(cursor, number, low, high, 0, is_practice=True)


def _shard(sampling: Sampling | StreamSampling, cursor: Cursor, shard: int) -> Piece:
    low, high = sampling.slice_of(cursor, shard)
    return Piece(cursor, shard, low, high, high - low)


@dataclass(frozen=True)
class Step:
    """A worker's part of one step.

    Attributes:
        number: what all workers call the step when they exchange.
        shards: its virtual shards.
        size: samples of the global batch; with streams that run dry there are fewer in the end.
        pieces: what the loop is fed, in order.
    """

    number: int
    shards: int
    size: int
    pieces: tuple[Piece, ...]

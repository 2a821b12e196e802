"""What makes batches of pieces, and what comes of a piece."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from hpctools.elastic.pieces import Piece


@dataclass(frozen=True)
class Mark:
    """A place in the stream of one virtual shard.

    Attributes:
        epoch: of the stream.
        taken: samples that were taken of it.
        state: its `state_dict()` there; None when it has ended.
    """

    epoch: int
    taken: int
    state: Any


@dataclass(frozen=True)
class Loaded:
    """What a piece came to.

    Attributes:
        batch: what the loop is fed; None when there were no samples.
        samples: how many there were.
        mark: where the piece's stream stands after it; None for a data set without streams.
    """

    batch: Any
    samples: int
    mark: Mark | None = None


class Source(Protocol):
    """Makes batches of pieces.

    Attributes:
        is_sticky: whether the pieces of one virtual shard are best made by one process.
    """

    is_sticky: bool

    def load(self, piece: Piece, mark: Mark | None) -> Loaded:
        """Read a piece's samples.

        Args:
            mark: a place that is known before the piece; used when the stream does not stand there, or
                between there and the piece, already.
        """
        ...

"""No state to go on from, or none that is old enough: what the worker that finds so tells the coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpctools.elastic.checkpoint.reading import persistently
from hpctools.elastic.checkpoint.selection import candidates
from hpctools.errors import ElasticError


class NoWayOn(ElasticError):
    """A worker cannot be part of a generation; the coordinator decides what is done."""


class NothingKept(NoWayOn):
    """A part of the training's state is lost, and storage has no checkpoint.

    Attributes:
        why: it is lost.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            f"{why}, and there is no checkpoint to go back to",
            "have it saved more often (elastic.Checkpoint), or give elastic.ShardedLoader copy_steps=",
        )
        self.why = why


class NothingOldEnough(NoWayOn):
    """No worker's memory and no checkpoint has a state of at most so many steps.

    Attributes:
        to_step: completed steps, at most, of what was looked for.
        kept: of how many steps the newest checkpoint is; None: there is none.
        skipped: numbers of the steps whose batches are to be left out.
    """

    def __init__(self, to_step: int, kept: int | None) -> None:
        super().__init__(
            f"cannot go back to step {to_step}: no worker and no checkpoint has its state",
            "give snapshots, or a shorter interval (checkpoint: snapshots, intervalInSeconds)",
        )
        self.to_step = to_step
        self.kept = kept
        self.skipped: list[int] = []


def told_of(error: Exception) -> dict[str, Any]:
    """The message of a worker that cannot be part of a generation; the coordinator decides what is done."""
    if isinstance(error, NothingOldEnough):
        way = {"to_step": error.to_step, "kept": error.kept, "skipped": error.skipped}
        return {"kind": "no_way_back", **way}
    if isinstance(error, NothingKept):
        return {"kind": "nothing_kept", "reason": error.why}
    return {"kind": "failed", "reason": str(error)[:500]}


def newest_kept(places: Sequence[str]) -> int | None:
    """Steps of the newest checkpoint of any place, as its manifest or name says; None: there is none.

    One that cannot be read counts: what it holds is not given up.

    Raises:
        ElasticError: a place cannot be read, for some seconds.
    """

    def look() -> int | None:
        seen = [candidates(place) for place in places]
        steps = [found.manifest.step for each in seen for found in each.usable]
        return max(steps + [unread.step for each in seen for unread in each.unread], default=None)

    return persistently(look)

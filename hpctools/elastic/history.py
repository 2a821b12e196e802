"""How a run went, over its whole time, in a file that never grows beyond its bound.

The coordinator notes a moment each second. When the file is full, every other moment of it goes and the
next ones come half as often: a run of a minute has its seconds, one of a month its hours, and both fit on a
page. Pure but for `History`, which keeps the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Protocol

MOST = 1024
"""Moments that the file holds, about 130 bytes each."""
FIRST_SECONDS = 1.0


@dataclass(frozen=True)
class Moment:
    """How the run stood at one time.

    Attributes:
        time: ISO 8601, UTC.
        size: workers that trained; 0 while nobody does.
        nodes: on so many nodes.
        loss, samples_per_second: None when not known.
        steps_per_second: None when not known, and where samples are.
    """

    time: str
    step: int
    size: int
    nodes: int
    loss: float | None = None
    samples_per_second: float | None = None
    steps_per_second: float | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Moment | None:
        """The inverse of `to_json`; None for a line that is no moment."""
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        try:
            datetime.fromisoformat(known.get("time", ""))
            return cls(**known)
        except (TypeError, ValueError):
            return None


def throughput(history: Sequence[Moment]) -> tuple[str, list[float | None]]:
    """The unit in which the throughput is known, `samples/s` or else `steps/s`, and that of each moment."""
    samples = [moment.samples_per_second for moment in history]
    steps = [moment.steps_per_second for moment in history]
    counts_steps = any(map(_is_known, steps)) and not any(map(_is_known, samples))
    return ("steps/s", steps) if counts_steps else ("samples/s", samples)


def _is_known(value: float | None) -> bool:
    return value is not None


class Store(Protocol):
    """Where the moments are kept (`RunFolder`)."""

    def history(self) -> list[Moment]:
        """All of them, oldest first."""
        ...

    def append_moment(self, moment: Moment) -> None:
        """Add the newest."""
        ...

    def replace_history(self, moments: Sequence[Moment]) -> None:
        """Put these in place of all."""
        ...


class History:
    """Keeps the moments of one run; a later coordinator of the same run goes on where the file ends.

    Args:
        most: how many moments the file may hold, at least 4.

    Its methods raise what the store raises.
    """

    def __init__(self, store: Store, most: int = MOST) -> None:
        self._store = store
        self._most = most
        self._count: int | None = None
        self._every = FIRST_SECONDS
        self._next = 0.0

    def note(self, now: float, moment: Moment, *, at_once: bool = False) -> None:
        """Write the moment down when it is time for one.

        Args:
            now: seconds that only grow.
            at_once: in any case: the last one.
        """
        if now < self._next and not at_once:
            return
        if self._count is None:
            self._go_on()
        if (self._count or 0) >= self._most:
            self._thin()
        self._next = now + self._every
        self._store.append_moment(moment)
        self._count = (self._count or 0) + 1

    def _go_on(self) -> None:
        """Take up what another coordinator of this run has left."""
        there = self._store.history()
        self._count = len(there)
        self._every = max(FIRST_SECONDS, _usual_distance(there))

    def _thin(self) -> None:
        kept = thinned(self._store.history())
        self._store.replace_history(kept)
        self._count, self._every = len(kept), 2 * self._every


def thinned(moments: Sequence[Moment]) -> list[Moment]:
    """Every other moment, from the first on."""
    return list(moments[::2])


def to_json(moment: Moment) -> dict[str, Any]:
    """A moment as JSON values, without what is not known."""
    return {name: value for name, value in asdict(moment).items() if value is not None}


def _usual_distance(moments: Sequence[Moment]) -> float:
    """Seconds between neighbours, the median; a gap between two coordinators does not count."""
    times = [datetime.fromisoformat(each.time).timestamp() for each in moments]
    gaps = sorted(after - before for before, after in pairwise(times))
    return gaps[len(gaps) // 2] if gaps else 0.0

"""How many restarts after crashes a run may have; decides nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

from hpctools.elastic.folder import Event, RunFolder
from hpctools.elastic.recovery.settings import EXIT_FULL_RESTARTS, EXIT_RETRIES
from hpctools.elastic.recovery.wiring import age_of
from hpctools.elastic.restart.effects import Broken
from hpctools.elastic.restart.limits import Limits
from hpctools.errors import ElasticError

BACKOFF_SECONDS = 30.0


@dataclass(frozen=True)
class Charge:
    """A generation's end that counted as a crash.

    Attributes:
        at: when, on the coordinator's clock; before its origin when an earlier coordinator counted it.
        generation: which one ended.
    """

    at: float
    generation: int


class Budget:
    """Counts restarts, in a window of time and ever.

    Args:
        period: seconds for which a restart counts.
        past: what earlier coordinators counted, oldest first.

    Attributes:
        ever: how many there were in the whole run.
        last: the generation after which the last one was; None: there was none.
    """

    def __init__(self, period: float, past: Iterable[Charge] = ()) -> None:
        self._period = period
        self._charged: deque[float] = deque()
        self.ever = 0
        self.last: int | None = None
        for each in past:
            self.charge(each.at, each.generation)

    def charge(self, now: float, generation: int) -> int:
        """One more restart; returns how many there were within the period, this one included."""
        self.ever += 1
        self.last = generation
        self._charged.append(now)
        while now - self._charged[0] > self._period:
            self._charged.popleft()
        return len(self._charged)


def backoff(within: int) -> float:
    """Seconds to wait before the next generation, after so many restarts within the period."""
    return min(BACKOFF_SECONDS, 2.0 ** (within - 2)) if within > 1 else 0.0


def exhausted(limits: Limits, why: str, within: int, ever: int) -> Broken | None:
    """How the run ends when a restart is one too many.

    Args:
        why: what the restart is for.
        within: how many there were within the period, this one included.
        ever: how many there were in the whole run, this one included.
    """
    if within > limits.restarts:
        code = EXIT_FULL_RESTARTS if limits.has_policy else None
        return Broken(f"{why} (after {within - 1} restarts in {limits.period:g} s)", code)
    if limits.has_policy and ever > limits.retries:
        return Broken(f"{why} (jobMaxRetryCount {limits.retries} is used up)", EXIT_RETRIES)
    return None


def charges_of(events: Iterable[Event], now: float, utc: datetime) -> list[Charge]:
    """What earlier coordinators counted, from their `charged` events; pure.

    Args:
        now, utc: the same moment, on the coordinator's clock and on the wall.
    """
    return [
        Charge(now - age, int(event.detail["generation"]))
        for event in events
        if event.event == "charged" and isinstance(event.detail.get("generation"), int)
        if (age := age_of(event.time, utc)) is not None
    ]


def read_charges(folder: RunFolder, now: float) -> list[Charge]:
    """What the run's folder tells; nothing where it cannot be read.

    Args:
        now: on the coordinator's clock.
    """
    try:
        return charges_of(folder.events(), now, datetime.now(timezone.utc))
    except ElasticError:
        return []

"""How many restarts after crashes a run may have; decides nothing else."""

from __future__ import annotations

from collections import deque

from hpctools.elastic.recovery.settings import EXIT_FULL_RESTARTS, EXIT_RETRIES
from hpctools.elastic.restart.effects import Broken
from hpctools.elastic.restart.limits import Limits


class Budget:
    """Counts restarts in a window of time.

    Args:
        period: seconds for which a restart counts.
    """

    def __init__(self, period: float) -> None:
        self._period = period
        self._charged: deque[float] = deque()

    def charge(self, now: float) -> int:
        """One more restart; returns how many there were within the period, this one included."""
        self._charged.append(now)
        while now - self._charged[0] > self._period:
            self._charged.popleft()
        return len(self._charged)


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

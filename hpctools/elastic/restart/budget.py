"""How many restarts after crashes a run may have within a period; decides nothing else."""

from __future__ import annotations

from collections import deque


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

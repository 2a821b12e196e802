"""How fast a count grows."""

from __future__ import annotations

from collections import deque


class Rate:
    """The rate of a count over its last seconds; it falls while the count stands still for longer.

    Args:
        seconds: over which it is taken.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: deque[tuple[float, int]] = deque()

    def per_second(self, now: float, count: int) -> float | None:
        """It stands at this now; None before it was seen to grow."""
        seen = self._seen
        if not seen or count != seen[-1][1]:
            seen.append((now, count))
        while len(seen) > 2 and now - seen[0][0] > self._seconds:
            seen.popleft()
        (first, few), (last, many) = seen[0], seen[-1]
        if not (last > first and many > few):
            return None
        overdue = now - last - max(self._seconds, last - first)
        return (many - few) / (last - first + max(0.0, overdue))

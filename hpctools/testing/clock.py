"""A clock for tests: time passes when somebody sleeps, and only then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class FakeClock:
    """Time in seconds since its start.

    Attributes:
        now: the present.
        events: called when the time they stand under is reached, in order.
    """

    now: float = 0.0
    events: dict[float, Callable[[], None]] = field(default_factory=dict)

    def time(self) -> float:
        """The present."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass, and what is due happen."""
        self.now += seconds
        for due in sorted(moment for moment in self.events if moment <= self.now):
            self.events.pop(due)()

"""Waiting for AWS, and telling how it goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hpctools.errors import UnreachableError


class Clock(Protocol):
    """Time, which tests make pass faster."""

    def now(self) -> float:
        """Seconds that only grow."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class RealClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass(frozen=True)
class Progress:
    """One thing that happened.

    Attributes:
        what: what it happened to: a stack, a resource, a cluster, a node group.
        state: what it is now.
        detail: why, or how much of it; may be empty.
    """

    what: str
    state: str
    detail: str = ""


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Watch:
    """How to wait.

    Attributes:
        report: is told of every step.
        clock: the time.
        limit_seconds: for one wait; AWS goes on without us afterwards.
        pause_seconds: between two questions.
    """

    report: Report
    clock: Clock
    limit_seconds: float = 4 * 3600
    pause_seconds: float = 10

    def tell(self, what: str, state: str, detail: str = "") -> None:
        """Report something."""
        self.report(Progress(what, state, detail))

    def until(self, done: Callable[[], bool], about: str) -> None:
        """Ask again and again until it is so.

        Args:
            done: asks, tells of progress, and says whether it is over.
            about: what is waited for, for the error.

        Raises:
            UnreachableError: it took longer than the limit.
        """
        deadline = self.clock.now() + self.limit_seconds
        while not done():
            if self.clock.now() >= deadline:
                raise UnreachableError(
                    f"{about} took more than {self.limit_seconds / 60:.0f} minutes; AWS goes on with it",
                    "run the same command again: it waits for what is under way",
                )
            self.clock.sleep(self.pause_seconds)

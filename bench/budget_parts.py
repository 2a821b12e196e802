"""Parts of a bench that may fail without the others being lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.course import say
from bench.report import Goal
from hpctools.errors import HpctoolsError


@dataclass
class Parts:
    """What was begun, and what became of it.

    Attributes:
        failed: names of parts, each once.
    """

    failed: list[str] = field(default_factory=list)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Around a part: what it raises is told on standard error, and it counts as failed."""
        try:
            yield
        except (HpctoolsError, AssertionError, OSError, ValueError, LookupError) as error:
            self.fail(name, f"{type(error).__name__}: {error}")

    def fail(self, name: str, why: str) -> None:
        """A part came to no good end."""
        say(f"bench: {name} failed: {why}")
        if name not in self.failed:
            self.failed.append(name)

    def goals(self) -> list[Goal]:
        """One that is not met for each that failed."""
        return [Goal(f"{name} came to its end", 0, "", ">=", 1) for name in self.failed]

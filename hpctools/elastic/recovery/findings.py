"""What was found, and the seconds in which something could have been expected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from hpctools.elastic.watchers import ASLEEP, Report, View

IDLE = ("waiting", "finishing", ASLEEP)
"""Phases in which no step is to be expected."""


@dataclass(frozen=True)
class Finding:
    """Something is wrong.

    Attributes:
        cause: one of `settings.CAUSES`.
        do: rungs of the ladder, the mildest first.
        why: in words, one line.
        name: of the rule, where rules have names.
        worker, node: who is to blame; empty when that is not known.
        step: the step that is to blame (of several in a row the first), or completed steps when it was seen;
            None: unknown.
        numbers: what it was found by.
        once: whether it is not found again although it is still so: a line that is a fault is printed once.
    """

    cause: str
    do: tuple[str, ...]
    why: str
    name: str = ""
    worker: str = ""
    node: str = ""
    step: int | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    once: bool = False


class Detector(Protocol):
    """Finds one kind of thing; pure but for what it remembers."""

    def heard(self, now: float, report: Report) -> list[Finding]:
        """A report has come."""
        ...

    def tick(self, now: float, view: View) -> list[Finding]:
        """Some time has passed."""
        ...

    def reset(self, *, anew: bool = True) -> None:
        """Something was done: what was seen before counts no more.

        Args:
            anew: all processes began again; False: only some did, or the state alone went back.
        """
        ...


class ActiveTime:
    """Seconds in which the run could have made progress; stands still while it waits for nodes."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last: float | None = None

    def tick(self, now: float, view: View) -> float:
        """The seconds until now."""
        if self._last is not None and view.phase not in IDLE and (view.generation or view.members):
            self.seconds += max(0.0, now - self._last)
        self._last = now
        return self.seconds

"""Waiting for a drained node: reminders, the deadline, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

_REMIND = (86_400, 4 * 3600, 3600, 1800, 900, 300, 60)
"""People are reminded so many seconds before the deadline."""
_LOOK_SECONDS = 5.0
_AFTER_DEADLINE = 120.0
"""A node that does not end sessions within this time is given up."""


class Drainee(Protocol):
    """A node that is being drained."""

    def drain(self, why: str) -> None:
        """Have it drained, for this reason; new words are told anew to its people."""

    def sessions(self) -> Mapping[int, str] | None:
        """Users by the number of each session that is there; None while the node says nothing of them."""

    def end(self, number: int) -> None:
        """Have a session ended."""


@dataclass(frozen=True)
class Course:
    """What is intended; times are seconds from now, None for none.

    Attributes:
        message: why.
        deadline: what is left then is ended.
        timeout: then nobody waits any more.
    """

    message: str
    deadline: float | None = None
    timeout: float | None = None

    def words(self, passed: float | None) -> str:
        """What people are told after this time: the deadline as it was last said, rounded."""
        if self.deadline is None:
            return self.message
        left = self.deadline - (passed or 0.0)
        said = next((mark for mark in sorted(_REMIND) if left <= mark), None)
        spelt = _spelt(min(self.deadline, said) if said is not None else self.deadline)
        closing = f"sessions that are left are ended in {spelt}"
        return f"{self.message} ({closing})" if self.message else closing


def _spelt(seconds: float) -> str:
    if seconds >= 7200:
        return f"{seconds / 3600:g} hours" if seconds % 3600 == 0 else f"{seconds / 3600:.1f} hours"
    return f"{max(1, round(seconds / 60))} minutes" if seconds > 60 else "a minute"


@dataclass(frozen=True)
class Shown:
    """Who is left: sessions, and how many each has."""

    count: int
    people: Mapping[str, int]


@dataclass(frozen=True)
class Report:
    """What came of it.

    Attributes:
        at_first, left_by_themselves, ended, left: sessions.
        seconds: that it took.
    """

    at_first: int
    left_by_themselves: int
    ended: int
    left: int
    seconds: float

    def __str__(self) -> str:
        one = "" if self.at_first == 1 else "s"
        words = f"{self.at_first} session{one} at first, {self.left_by_themselves} left by themselves"
        ended = f", {self.ended} ended at the deadline" if self.ended else ""
        left = f", {self.left} still there" if self.left else "; nobody is left"
        return f"{words}{ended}{left} ({round(self.seconds)} s)"

    def as_json(self) -> dict[str, Any]:
        """The figures."""
        return {**vars(self), "seconds": round(self.seconds, 1)}


def follow(
    node: Drainee,
    course: Course,
    tell: Callable[[Shown], object],
    monotonic: Callable[[], float],
    sleep: Callable[[float], object],
) -> Report:
    """Wait until nobody is left, remind people, and end what is left at the deadline.

    Args:
        tell: is shown who is left, whenever that changes.

    Raises:
        HpctoolsError: the service refuses or does not answer.
    """
    begin, said = monotonic(), course.words(None)
    seen: set[int] = set()
    asked: set[int] = set()
    last: Mapping[int, str] | None = None
    while True:
        told, passed = node.sessions(), monotonic() - begin
        present = told if told is not None else last or {}
        seen |= set(present)
        if told is not None and present != last:
            tell(Shown(len(present), Counter(present.values())))
            last = present
        if (told is not None and not present) or _is_over(course, passed):
            return _report(seen, asked, set(present), passed)
        if course.deadline is not None and passed >= course.deadline:
            for number in sorted(set(present) - asked):
                node.end(number)
            asked |= set(present)
        elif course.words(passed) != said:
            said = course.words(passed)
            node.drain(said)
        sleep(_LOOK_SECONDS)


def _is_over(course: Course, passed: float) -> bool:
    given_up = course.deadline is not None and passed >= course.deadline + _AFTER_DEADLINE
    return given_up or (course.timeout is not None and passed >= course.timeout)


def _report(seen: set[int], asked: set[int], present: set[int], passed: float) -> Report:
    return Report(len(seen), len(seen - asked - present), len(asked - present), len(present), passed)

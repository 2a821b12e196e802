"""Waiting for a drained node: reminders, the deadline, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.login.durations import spelt

_REMIND = (86_400, 4 * 3600, 3600, 1800, 900, 300, 60)
"""People are reminded so many seconds before the deadline."""
_LOOK_SECONDS = 5.0
SILENCE_SECONDS = 1800.0
"""A service that has not answered for so long is given up."""
_AFTER_DEADLINE = 120.0
"""A node that does not end sessions within this time is given up."""


class Drainee(Protocol):
    """A node that is being drained."""

    def drain(self, why: str) -> None:
        """Have it drained, for this reason; new words are told anew to its people."""

    def is_drained(self) -> bool:
        """Whether it still is: anybody may give it back meanwhile."""

    def sessions(self) -> Mapping[int, str] | None:
        """Users by the number of each session that is there; None while the node says nothing of them."""

    def end(self, number: int) -> bool:
        """Have a session ended; False: it is over, or nothing is known of it as its node is silent."""


@dataclass(frozen=True)
class Course:
    """What is intended; times are seconds from now, None for none.

    Attributes:
        message: why.
        deadline: what is left then is ended.
        clock: when that is by the clock (`durations.at_clock`).
        timeout: then nobody waits any more.
    """

    message: str
    deadline: float | None = None
    timeout: float | None = None
    clock: str = ""

    def words(self, passed: float | None) -> str:
        """What people are told after this time, and who comes later as well, until there are other words."""
        if self.deadline is None:
            return self.message
        left = self.deadline - (passed or 0.0)
        said = next((mark for mark in sorted(_REMIND) if left <= mark), None)
        time_left = spelt(min(self.deadline, said) if said is not None else self.deadline)
        when = f"{self.clock}, within {time_left}" if self.clock else f"within {time_left}"
        closing = f"sessions that are left are ended {when}"
        return f"{self.message} ({closing})" if self.message else closing


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
        silent: nothing was heard of the node, or of the service, at last: nobody knows who is there.
    """

    at_first: int
    left_by_themselves: int
    ended: int
    left: int
    seconds: float
    silent: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it is known that nobody is there."""
        return not self.left and not self.silent

    def __str__(self) -> str:
        one = "" if self.at_first == 1 else "s"
        words = f"{self.at_first} session{one} at first, {self.left_by_themselves} left by themselves"
        ended = f", {self.ended} ended at the deadline" if self.ended else ""
        left = f", {self.left} still there" if self.left else "; nobody is left"
        if self.silent:
            left = f"; who is there is not known: nothing was heard at last ({self.left} before that)"
        return f"{words}{ended}{left} ({round(self.seconds)} s)"

    def as_json(self) -> dict[str, Any]:
        """The figures."""
        return {**vars(self), "seconds": round(self.seconds, 1)}


def follow(
    node: Drainee,
    course: Course,
    tell: Callable[[Shown | str], object],
    monotonic: Callable[[], float],
    sleep: Callable[[float], object],
) -> Report:
    """Wait until nobody is left, remind people, and end what is left at the deadline.

    A service that does not answer is asked again, for SILENCE_SECONDS at most: reminders and the deadline
    come then, late rather than never.

    Args:
        tell: is shown who is left, whenever that changes, and told when the service falls silent or answers
            again.

    Raises:
        UnreachableError: the service has not answered for too long.
        HpctoolsError: it refuses, or somebody gave the node back.
    """
    wait = _Wait(node, course, tell, monotonic())
    while True:
        try:
            found = wait.look(monotonic())
        except UnreachableError as error:
            found = wait.unanswered(monotonic(), error)
        if found is not None:
            return found
        sleep(_LOOK_SECONDS)


class _Wait:
    """What is known of a node that is waited for; times are seconds since the beginning."""

    def __init__(
        self, node: Drainee, course: Course, tell: Callable[[Shown | str], object], begin: float
    ) -> None:
        self._node, self._course, self._tell, self._begin = node, course, tell, begin
        self._said = course.words(None)
        self._seen: set[int] = set()
        self._asked: set[int] = set()
        self._last: Mapping[int, str] | None = None
        self._ending_since: float | None = None
        self._answered = 0.0
        self._is_silent = False

    def look(self, now: float) -> Report | None:
        """Look once, and do what is due; the report when it is over."""
        passed, told = now - self._begin, self._node.sessions()
        self._hear(passed)
        present = told if told is not None else self._last or {}
        self._seen |= set(present)
        if told is not None and present != self._last:
            self._tell(Shown(len(present), Counter(present.values())))
            self._last = present
        if (told is not None and not present) or self._is_over(passed):
            return self._report(set(present), passed, silent=told is None)
        if self._course.deadline is not None and passed >= self._course.deadline:
            self._end(present, passed)
        elif (words := self._course.words(passed)) != self._said:
            self._check_drained()
            self._node.drain(words)
            self._said = words
        return None

    def _end(self, present: Mapping[int, str], passed: float) -> None:
        if self._ending_since is None:
            self._ending_since = passed
        for number in sorted(set(present) - self._asked):
            self._check_drained()
            if self._node.end(number):  # else asked again, should its node tell of it again
                self._asked.add(number)

    def _check_drained(self) -> None:
        """A reminder would drain it anew, and the deadline was for a node that nobody may be on."""
        if not self._node.is_drained():
            raise HpctoolsError(
                "the node takes sessions again: somebody gave it back, and nobody is reminded or ended",
                "drain it again if that was not meant",
            )

    def unanswered(self, now: float, error: UnreachableError) -> Report | None:
        """The service did not answer; the report when the time to wait is over all the same."""
        passed = now - self._begin
        if passed - self._answered >= SILENCE_SECONDS:
            raise error
        if not self._is_silent:
            self._is_silent = True
            self._tell(
                f"{error.message}: it is asked again, and given up after {spelt(SILENCE_SECONDS)} without an "
                "answer; until it answers nobody is reminded or ended"
            )
        if self._course.timeout is not None and passed >= self._course.timeout:
            return self._report(set(self._last or {}), passed, silent=True)
        return None

    def _report(self, present: set[int], passed: float, *, silent: bool) -> Report:
        left = self._seen - self._asked - present
        return Report(
            len(self._seen), len(left), len(self._asked - present), len(present), passed, silent=silent
        )

    def _hear(self, passed: float) -> None:
        self._answered = passed
        if self._is_silent:
            self._is_silent = False
            self._tell("the service answers again")

    def _is_over(self, passed: float) -> bool:
        """People have time from when they were ended, not from a deadline that nobody could keep."""
        given_up = self._ending_since is not None and passed >= self._ending_since + _AFTER_DEADLINE
        return given_up or (self._course.timeout is not None and passed >= self._course.timeout)

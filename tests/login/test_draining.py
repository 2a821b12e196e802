"""Waiting for a drained node: who leaves by themselves, who is reminded, who is ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.login.draining import SILENCE_SECONDS, Course, Report, Shown, follow


@dataclass
class MadeNode:
    """A node whose people leave at known times; it ends sessions when asked, unless it is stuck."""

    leaving: dict[int, float]
    stuck: bool = False
    now: float = 0.0
    given_back: float = 1e12
    told: list[tuple[float, str]] = field(default_factory=list)
    ended: list[tuple[float, int]] = field(default_factory=list)

    def drain(self, why: str) -> None:
        self.told.append((self.now, why))

    def is_drained(self) -> bool:
        return self.now < self.given_back

    def sessions(self) -> Mapping[int, str]:
        return {number: f"nlp{number}" for number, end in self.leaving.items() if end > self.now}

    def end(self, number: int) -> bool:
        self.ended.append((self.now, number))
        if not self.stuck:
            self.leaving[number] = self.now
        return True

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def wait(node: MadeNode, course: Course) -> tuple[Report, list[Any]]:
    shown: list[Shown | str] = []
    return follow(node, course, shown.append, lambda: node.now, node.sleep), shown


def test_people_leave_by_themselves() -> None:
    node = MadeNode({1: 7.0, 2: 60.0})
    report, shown = wait(node, Course("new kernel"))
    assert report == Report(2, 2, 0, 0, 60.0)
    assert str(report) == "2 sessions at first, 2 left by themselves; nobody is left (60 s)"
    assert [each.count for each in shown] == [2, 1, 0]
    assert (node.told, node.ended) == ([], [])


def test_who_is_left_at_the_deadline_was_reminded_and_is_ended() -> None:
    node = MadeNode({1: 100.0, 2: 1e9})
    course = Course("new kernel", 7200.0, clock="at 16:30 CET")
    assert course.words(None) == "new kernel (sessions that are left are ended at 16:30 CET, within 2 hours)"
    report, _ = wait(node, course)
    assert report == Report(2, 1, 1, 0, 7205.0)
    assert node.ended == [(7200.0, 2)]
    assert [(at, words.rpartition(" within ")[2]) for at, words in node.told] == [
        (3600.0, "1 hour)"), (5400.0, "30 minutes)"), (6300.0, "15 minutes)"), (6900.0, "5 minutes)"),
        (7140.0, "1 minute)"),
    ]  # fmt: skip


@pytest.mark.parametrize("deadline", [90.0, 4000.0, 7200.0, 100_000.0])
def test_who_comes_later_is_told_nothing_wrong(deadline: float) -> None:
    """Until the next reminder they are told what was said last: `in 2 hours` was wrong a moment later."""
    node = MadeNode({1: 1e9})
    course = Course("", deadline, clock="on 2 May at 16:30 CEST")
    wait(node, course)
    for at, words in [(0.0, course.words(None)), *node.told]:
        assert "ended on 2 May at 16:30 CEST, within " in words
        number, unit = words.rpartition(" within ")[2].split()
        seconds = float(number) * {"second": 1, "minute": 60, "hour": 3600}[unit.rstrip("s")]
        assert seconds > 0.95 * (deadline - at), "rounded"


@pytest.mark.parametrize(("given_back", "reminders"), [(3000.0, 0), (3700.0, 1), (7199.0, 5)])
def test_a_node_that_somebody_gave_back_is_not_drained_again_and_nobody_ended(
    given_back: float, reminders: int
) -> None:
    node = MadeNode({1: 1e9}, given_back=given_back)
    with pytest.raises(HpctoolsError, match="somebody gave it back, and nobody is reminded or ended"):
        wait(node, Course("new kernel", deadline=7200.0))
    assert (len(node.told), node.ended) == (reminders, [])


def test_a_node_that_ends_nothing_is_given_up() -> None:
    node = MadeNode({1: 1e9}, stuck=True)
    report, _ = wait(node, Course("", deadline=10.0))
    assert (report.left, report.ended, len(node.ended)) == (1, 0, 1)
    assert report.seconds == 130.0
    assert "1 still there" in str(report)


def test_a_node_that_says_nothing_is_not_empty() -> None:
    """Silent from the start to the deadline and beyond: nobody knows, and it is said that it was given up."""

    class Silent(MadeNode):
        def sessions(self) -> Mapping[int, str] | None:  # type: ignore[override]
            return None if 5 <= self.now < 40 else super().sessions()

    report, shown = wait(Silent({1: 20.0}), Course(""))
    assert report == Report(1, 1, 0, 0, 40.0)
    assert [each.count for each in shown] == [1, 0]
    report, _ = wait(Silent({1: 1e9}), Course("", timeout=30.0))
    assert report == Report(1, 0, 0, 1, 30.0, silent=True)


@pytest.mark.parametrize("course", [Course("", timeout=30.0), Course("", deadline=60.0)])
def test_of_a_node_that_was_never_heard_nobody_says_that_it_is_empty(course: Course) -> None:
    """Whoever reboots it would reboot it with people on it."""

    class Mute(MadeNode):
        def sessions(self) -> Mapping[int, str] | None:  # type: ignore[override]
            return None

    report, _ = wait(Mute({1: 1e9}), course)
    assert (report.left, report.silent, report.is_empty) == (0, True, False)
    assert "nobody is left" not in str(report)
    assert "; who is there is not known: nothing was heard at last (0 before that)" in str(report)


def test_who_was_not_known_at_the_deadline_is_ended_when_their_node_tells_of_them_again() -> None:
    """The service knows nothing of sessions of a node that is silent, as all are when it begins anew."""

    class Forgotten(MadeNode):
        def sessions(self) -> Mapping[int, str] | None:  # type: ignore[override]
            return None if 90 <= self.now < 120 else super().sessions()

        def end(self, number: int) -> bool:
            return self.sessions() is not None and super().end(number)

    node = Forgotten({1: 1e9})
    report, _ = wait(node, Course("", deadline=100.0))
    assert node.ended == [(120.0, 1)]
    assert (report.ended, report.left) == (1, 0)


class Restarting(MadeNode):
    """One whose service does not answer for a while, whatever it is asked."""

    away: tuple[float, float] = (0.0, 0.0)

    def _ask(self) -> None:
        if self.away[0] <= self.now < self.away[1]:
            raise UnreachableError("api does not answer: connection refused", "try again")

    def drain(self, why: str) -> None:
        self._ask()
        super().drain(why)

    def sessions(self) -> Mapping[int, str]:
        self._ask()
        return super().sessions()

    def end(self, number: int) -> bool:
        self._ask()
        return super().end(number)


def restarting(leaving: dict[int, float], *away: float) -> Restarting:
    node = Restarting(leaving)
    node.away = (away[0], away[1])
    return node


def test_a_service_that_is_begun_again_ends_neither_reminders_nor_the_deadline() -> None:
    node = restarting({1: 1e9}, 3000.0, 3900.0)
    report, shown = wait(node, Course("new kernel", deadline=7200.0))
    assert (report.ended, report.left, report.seconds) == (1, 0, 7205.0)
    assert node.told[0] == (3900.0, "new kernel (sessions that are left are ended within 1 hour)")
    assert [each for each in shown if isinstance(each, str)] == [
        "api does not answer: connection refused: it is asked again, and given up after 30 minutes without "
        "an answer; until it answers nobody is reminded or ended",
        "the service answers again",
    ]


def test_who_should_have_been_ended_meanwhile_is_ended_when_it_answers() -> None:
    """And their time to go begins then: a deadline that nobody could keep is not held against them."""
    node = restarting({1: 1e9}, 50.0, 500.0)
    report, _ = wait(node, Course("", deadline=100.0))
    assert node.ended == [(500.0, 1)]
    assert (report.ended, report.left) == (1, 0)


def test_a_service_that_stays_away_is_given_up() -> None:
    node = restarting({1: 1e9}, 10.0, 1e9)
    with pytest.raises(UnreachableError, match="connection refused"):
        wait(node, Course("", deadline=100.0))
    assert node.now == 5.0 + SILENCE_SECONDS
    report, _ = wait(restarting({1: 1e9}, 10.0, 1e9), Course("", timeout=60.0))
    assert (report.left, report.seconds, report.silent) == (1, 60.0, True)


def test_nobody_waits_beyond_the_timeout() -> None:
    report, _ = wait(MadeNode({1: 1e9}), Course("", timeout=20.0))
    assert report == Report(1, 0, 0, 1, 20.0)

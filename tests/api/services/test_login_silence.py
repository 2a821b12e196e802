"""The service was away for longer than a heartbeat: limits hold from its first answer on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.db.login_store import LoginStore
from hpctools.login.limits import Refused
from tests.api.services.test_login import HEARTBEAT, Desk, desk, there

__all__ = ["desk"]


@pytest.fixture
def away(desk: Desk) -> Desk:
    """Two sessions on two nodes, and nobody has heard of a third node for long; then nobody answers."""
    desk.report("login-3", there("5-1", "nlp2"), agent="third")
    for _ in range(3):
        desk.clock.now += HEARTBEAT // 3
        desk.report("login-1", there("1-1"))
        desk.report("login-2", there("2-1"))
    desk.clock.now += 10 * HEARTBEAT
    return desk


def test_the_third_of_two_is_refused_by_the_first_answer_after_it(away: Desk) -> None:
    assert away.open("login-1", "3-1") is not None
    assert away.open("login-1", "1-1") is None, "who has it already, has it"
    assert isinstance(away.place("nlp1").found, Refused)
    assert away.claims("nlp2") == [], "what was over before it is over"


def test_also_by_that_which_finds_a_place(away: Desk) -> None:
    assert isinstance(away.place("nlp1").found, Refused)


def test_another_node_that_reports_first_changes_nothing_for_the_rest(away: Desk) -> None:
    """As also another replica of the service may have answered it."""
    away.report("login-2", there("2-1"))
    away.store = LoginStore(away.books, away.clock) if "postgres" in str(away.books.url) else away.store
    away.clock.now += HEARTBEAT // 3
    assert away.claims() == ["1-1", "2-1"]
    assert away.open("login-3", "3-1") is not None


def test_what_a_node_says_then_counts_at_once(away: Desk) -> None:
    assert away.open("login-1", "3-1") is not None
    away.report("login-2")
    assert away.open("login-1", "3-1") is None


@pytest.mark.parametrize("asks", [1, 4])
def test_a_node_that_never_comes_back_keeps_nobody_out_for_longer_than_a_heartbeat(
    away: Desk, asks: int
) -> None:
    """However often they ask meanwhile, and though no agent says a word."""
    for _ in range(asks):
        assert away.open("login-3", "3-1") is not None
        away.clock.now += (HEARTBEAT - 1) // asks
    assert away.open("login-3", "3-1") is not None
    away.clock.now += 4
    assert away.open("login-3", "3-1") is None


def test_a_short_one_does_not_let_leases_run_out_before_their_nodes_report(desk: Desk) -> None:
    """A lease is of up to ten seconds before it, and its node tells of itself up to ten after it."""
    desk.report("login-1", there("1-1"), there("2-1"))
    desk.clock.now += 8
    desk.report("login-2", agent="second")
    desk.clock.now += HEARTBEAT - 10
    desk.report("login-2", agent="second")
    desk.clock.now += 9
    assert desk.open("login-2", "3-1") is not None


def test_one_of_a_little_more_than_the_time_between_two_reports_too(desk: Desk) -> None:
    desk.report("login-1", there("1-1"), there("2-1"))
    desk.clock.now += 9
    desk.report("login-2", agent="second")
    desk.clock.now += HEARTBEAT // 3 + 2
    desk.report("login-2", agent="second")
    desk.clock.now += 9
    assert desk.open("login-2", "3-1") is not None


def test_agents_that_were_cut_off_for_long_while_people_asked_find_their_sessions_counted(
    away: Desk,
) -> None:
    """Who asked first had all prolonged once, and that is over, too, when the first node comes back."""
    away.clock.now -= 9 * HEARTBEAT
    for _ in range(30):
        away.place("nlp1")
        away.clock.now += 9
    assert away.claims() == []
    away.report("login-2", there("2-1"), agent="agent-1")
    assert away.claims() == ["1-1", "2-1"]
    assert away.open("login-2", "3-1") is not None
    for _ in range(3):
        away.clock.now += HEARTBEAT // 3
        away.report("login-2", there("2-1"))
    assert away.open("login-2", "3-1") is None, "login-1 never came back"


def test_a_departments_sessions_on_a_node_that_is_cut_off_count_for_a_heartbeat_and_again_when_it_is_back(
    desk: Desk,
) -> None:
    """What the limit is exceeded by is what others of the department open meanwhile."""
    desk.rules = replace(desk.rules, per_department=2)
    desk.report("login-2", agent="second")
    desk.report("login-1", there("1-1", "nlp1"), there("1-2", "nlp2"))
    cut_off = desk.clock.now
    while desk.clock.now < cut_off + HEARTBEAT:
        assert desk.open("login-2", "2-1", "nlp3") is not None
        desk.clock.now += HEARTBEAT // 3
        desk.report("login-2", agent="second")
    desk.clock.now += 4
    assert [desk.open("login-2", f"2-{number}", "nlp3") for number in (1, 2)] == [None, None]
    assert desk.open("login-2", "2-3", "nlp-lead-a") is not None
    desk.report("login-1", there("1-1", "nlp1"), there("1-2", "nlp2"))
    desk.report("login-2", there("2-1", "nlp3"), there("2-2", "nlp3"), agent="second")
    assert desk.open("login-1", "1-3", "nlp-lead-a") is not None
    desk.report("login-2", agent="second")
    assert desk.open("login-1", "1-3", "nlp-lead-a") is not None, "two of two are there"
    desk.report("login-1", there("1-1", "nlp1"))
    assert desk.open("login-1", "1-3", "nlp3") is None

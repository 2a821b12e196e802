"""The benches of login nodes: what they make of what they saw."""

from __future__ import annotations

import pytest

from bench.login_logins import Login, Logins, Measured, crowd_row, from_even, goals, p95
from bench.login_placement import AT_MOST, PROBES, affordable


def test_a_service_that_keeps_up_is_asked_all_and_another_one_what_it_can_answer_in_time() -> None:
    assert affordable(1000.0, 30) == 6000
    assert affordable(50.0, 30) == int(50 * 30 * AT_MOST)
    assert affordable(0.5, 2) == PROBES


def test_a_row_has_the_distribution_and_the_spread_of_each_round() -> None:
    found = [Login(seconds / 1000, 0.002) for seconds in range(1, 101)]
    spreads = [{"login-2": 26, "login-1": 24}, {"login-1": 25, "login-2": 25}]
    made = crowd_row("ours, at once", [found[:50], found[50:]], spreads)
    assert (made.logins, made.p50_ms, made.most_ms) == (100, pytest.approx(50.5), pytest.approx(100.0))
    assert (made.p95_ms, made.place_p95_ms) == (pytest.approx(95.05), pytest.approx(2.0))
    assert (made.by_node, made.p95_by_round) == ("24 26; 25 25", "48 98")


def test_the_95th_percentile_is_never_beyond_what_was_seen() -> None:
    assert p95([1.0, 2.0, 3.0]) <= 3.0


def test_how_far_from_even() -> None:
    assert from_even({"a": 50, "b": 50, "c": 50, "d": 50}) == 0
    assert from_even({"a": 52, "b": 50, "c": 49, "d": 49}) == 2


def test_what_is_added_is_the_difference_of_like_with_like() -> None:
    def taken(what: str, p95_ms: float) -> Logins:
        return Logins(what, 10, 1.0, p95_ms, 500.0, 0.0)

    rows = [("plain, at once", 400.0), ("ours, at once", 470.0)]
    rows += [("plain, 1 at a time", 90.0), ("ours, 1 at a time", 100.0)]
    rows += [("plain, 4 at a time", 100.0), ("ours, 4 at a time", 130.0)]
    found = Measured(tuple(taken(*each) for each in rows), 0.5, {1: 9.0, 4: 25.0})
    assert {goal.name.partition(", all")[0]: (goal.value, goal.met) for goal in goals(found)} == {
        "sessions away from even": (0.5, True),
        "added p95, 1 at a time": (10.0, True),
        "added median of pairs, 1 at a time": (9.0, True),
        "added p95, 4 at a time": (30.0, True),
        "added median of pairs, 4 at a time": (25.0, True),
        "added p95, at once": (70.0, False),
    }

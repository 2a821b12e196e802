from __future__ import annotations

import pytest

from hpctools.login.limits import Limits, Open, Refused, age, decide


def session(number: int, since: float = 3700.0, **known: str | bool) -> Open:
    facts = {"node": "login-1", "claim": f"{number}-9", "origin": "192.0.2.7", "kind": "ssh"} | known
    return Open(id=number, user="nlp1", since=since, **facts)  # type: ignore[arg-type]


def test_below_the_limits_a_session_may_begin() -> None:
    assert decide("nlp1", [session(1)], 7, Limits(2, "nlp", 8)) is None
    assert decide("nlp1", [session(n) for n in range(99)], 999, Limits(None)) is None


def test_who_has_all_their_sessions_is_told_which_where_since_when_and_how_to_end_one() -> None:
    own = [session(7), session(5, 200_000.0, node="login-2"), session(9, 40.0, kind="ssm", origin="")]
    found = decide("nlp1", own, 3, Limits(3))
    assert found == Refused(
        "nlp1: you have 3 sessions on the login nodes, and the limit is 3:\n"
        "  5: login-2, for 2 d 7 h, from 192.0.2.7\n"
        "  7: login-1, for 1 h 1 min, from 192.0.2.7\n"
        "  9: login-1, for 40 s, from Session Manager\n"
        "To end one: log out there, or hp-login --end 5",
        tuple(own),
    )


def test_who_has_ended_one_is_not_sent_to_end_it_again() -> None:
    """Its node does it with its next report; until then it counts."""
    own = [session(5, 200_000.0, ending=True), session(7)]
    for found in (decide("nlp1", own, 2, Limits(2)), decide("nlp1", own, 8, Limits(4, "nlp", 8))):
        assert found is not None
        assert found.message.splitlines()[-3:] == [
            "  5: login-1, for 2 d 7 h, from 192.0.2.7, is being ended",
            "  7: login-1, for 1 h 1 min, from 192.0.2.7",
            "Please try again in some seconds, when it has ended.",
        ]
    found = decide("nlp1", own, 2, Limits(1))
    assert found is not None
    assert found.message.endswith("\nTo end one: log out there, or hp-login --end 7"), "two have to go"


def test_a_department_has_a_limit_of_its_own() -> None:
    limits = Limits(4, "nlp", 8)
    assert decide("nlp1", [], 8, limits) == Refused(
        "nlp1: nlp has 8 sessions on the login nodes, and its limit is 8.\nNone of them is yours.",
        (),
        "department",
    )
    found = decide("nlp1", [session(7)], 8, limits)
    assert found is not None
    assert found.message.splitlines()[1:] == [
        "Yours are:",
        "  7: login-1, for 1 h 1 min, from 192.0.2.7",
        "To end one: log out there, or hp-login --end 7",
    ]


def test_a_limit_of_none_at_all_is_said_as_such() -> None:
    assert decide("nlp1", [], 0, Limits(0)) == Refused(
        "nlp1: you have 0 sessions on the login nodes, and the limit is 0:", ()
    )


def test_a_long_list_is_cut() -> None:
    found = decide("nlp1", [session(n) for n in range(30)], 30, Limits(30))
    assert found is not None
    lines = found.message.splitlines()
    assert (len(lines), lines[-2]) == (23, "  and 10 more")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h 0 min"), (86400, "1 d 0 h")],
)
def test_ages_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert age(seconds) == said

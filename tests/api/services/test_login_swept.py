"""Session Manager's sessions on nodes without an agent: only a function tells of them, once a minute."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.auth.principal import Principal
from api.services.login_leases import SWEPT_SECONDS, ask_to_end, close_lease, sessions
from api.services.login_reports import FORGOTTEN_SECONDS
from hpctools.login.limits import Refused
from hpctools.login.names import EVERYBODYS
from hpctools.login.placement import Placed
from tests.api.services.test_login import HEARTBEAT, Desk, desk, there

__all__ = ["desk"]
SWEEP = 60


def swept(desk: Desk, claim: str, node: str = "no-agent") -> Refused | None:
    return desk.open(node, claim, kind="ssm")


@pytest.fixture
def heard(desk: Desk) -> Desk:
    """Another node's agent lives, so that the service is not the silent one."""
    desk.report("login-1", agent="first")
    return desk


def pass_time(desk: Desk, seconds: int) -> None:
    for _ in range(seconds // 10):
        desk.clock.now += 10
        desk.report("login-1", agent="first")


def test_they_count_all_the_time_as_each_sweep_prolongs_them(heard: Desk) -> None:
    for _ in range(5):
        assert [swept(heard, claim) for claim in ("uni-1", "uni-2")] == [None, None]
        pass_time(heard, SWEEP - 10)
        assert heard.open("login-1", "1-1") is not None
        assert swept(heard, "uni-3") is not None
        pass_time(heard, 10)
    since = [session.since for session in sessions(heard.store, {"nlp1"})]
    assert since == [1_000_000, 1_000_000], "they are the same sessions"


def test_what_no_sweep_finds_any_more_counts_for_two_and_a_half(heard: Desk) -> None:
    swept(heard, "uni-1")
    swept(heard, "uni-2")
    pass_time(heard, SWEPT_SECONDS - 10)
    assert heard.open("login-1", "1-1") is not None
    pass_time(heard, 10)
    assert heard.open("login-1", "1-1") is None


def test_where_an_agent_tells_of_them_its_heartbeat_decides(heard: Desk) -> None:
    """Also of what was opened before its agent came, and however often the function asks."""
    swept(heard, "uni-1", "login-2")
    heard.report("login-2", there("uni-1", kind="ssm"), agent="second")
    assert swept(heard, "uni-1", "login-2") is None
    assert swept(heard, "uni-2", "login-2") is None
    pass_time(heard, HEARTBEAT - 10)
    assert heard.open("login-1", "1-1") is not None
    pass_time(heard, 10)
    assert heard.open("login-1", "1-1") is None


def test_what_is_to_end_stays_so_for_as_long_as_aws_does_not_end_it(heard: Desk) -> None:
    """TerminateSession is refused, or its rate limited, sweep after sweep."""
    swept(heard, "uni-1")
    (session,) = sessions(heard.store, {"nlp1"})
    ask_to_end(heard.store, heard.books, session, Principal("nlp1", ()), 5)
    for _ in range(5):
        pass_time(heard, SWEEP)
        assert swept(heard, "uni-1") is not None
    pass_time(heard, SWEPT_SECONDS)
    assert heard.claims() == [], "what is asked for no longer is over"
    assert swept(heard, "uni-1") is None, "it is forgotten that it was to end"


def test_their_department_is_that_of_now(heard: Desk) -> None:
    """No agent reports them: after a renaming the department's limit was free again until they ended."""
    heard.rules = replace(heard.rules, per_department=2)
    assert [swept(heard, claim) for claim in ("uni-1", "uni-2")] == [None, None]
    renamed = {name: "language" if of == "nlp" else of for name, of in heard.rules.departments.items()}
    heard.rules = replace(heard.rules, departments=renamed)
    pass_time(heard, SWEEP)
    assert [swept(heard, claim) for claim in ("uni-1", "uni-2")] == [None, None]
    refused = heard.open("login-1", "1-1", "nlp2")
    assert refused is not None
    assert "language has 2 sessions" in refused.message


def test_everybodys_account_has_had_none_too_many(heard: Desk) -> None:
    """Where a tag names it, its several people would have ended each other's sessions."""
    found = [heard.open("no-agent", f"uni-{number}", EVERYBODYS, kind="ssm") for number in range(5)]
    assert found == [None] * 5


def test_who_comes_by_ssh_as_everybodys_account_is_limited_as_all_are(heard: Desk) -> None:
    """Only Session Manager makes several people of it."""
    found = [heard.open("login-1", f"{number}-1", EVERYBODYS) for number in range(3)]
    assert found[:2] == [None, None]
    assert found[2] is not None


@pytest.mark.parametrize("told", [True, False])
def test_a_node_that_crashed_keeps_nobody_out_for_as_long_as_aws_lists_its_sessions(
    heard: Desk, told: bool
) -> None:
    """Whether the agent had told of them, or the function alone; AWS knows of the crash much later."""
    there_ = [there(claim, kind="ssm") for claim in ("uni-1", "uni-2")] if told else []
    heard.report("login-2", *there_, agent="second")
    for _ in range(3):
        assert [swept(heard, claim, "login-2") for claim in ("uni-1", "uni-2")] == [None, None]
        pass_time(heard, 10)
        heard.report("login-2", *there_, agent="second", sample_age=10.0 if told else 60.0)
    assert heard.open("login-1", "1-1") is not None
    for begun in range(0, 20 * SWEEP, 10):
        if begun % SWEEP == 50:
            assert [swept(heard, claim, "login-2") for claim in ("uni-1", "uni-2")] == [None, None]
        assert (heard.open("login-1", f"{begun}-1") is not None) == (begun < HEARTBEAT)
        close_lease(heard.store, "login-1", f"{begun}-1")
        pass_time(heard, 10)


def test_who_comes_while_the_agent_is_silent_counts_for_a_heartbeat_and_again_with_its_reports(
    heard: Desk,
) -> None:
    heard.report("login-2", agent="second")
    pass_time(heard, HEARTBEAT)
    assert [swept(heard, claim, "login-2") for claim in ("uni-1", "uni-2")] == [None, None]
    assert heard.open("login-1", "1-1") is not None
    pass_time(heard, HEARTBEAT)
    assert swept(heard, "uni-1", "login-2") is None
    assert heard.claims() == []
    heard.report("login-2", *(there(claim, kind="ssm") for claim in ("uni-1", "uni-2")), agent="second")
    assert heard.claims() == ["uni-1", "uni-2"]
    assert heard.open("login-1", "1-1") is not None


def test_what_is_to_end_on_a_node_that_is_silent_stays_to_end(heard: Desk) -> None:
    """Also when it does not count any more: the function, which is told so, ends it."""
    heard.report("login-2", there("uni-1", kind="ssm"), agent="second")
    (session,) = sessions(heard.store, {"nlp1"})
    ask_to_end(heard.store, heard.books, session, Principal("nlp1", ()), 5)
    pass_time(heard, 2 * HEARTBEAT)
    assert swept(heard, "uni-1", "login-2") is not None


@pytest.mark.parametrize("to_end", [False, True])
def test_what_aws_lists_for_hours_on_a_node_that_is_silent_stays_what_it_was(
    heard: Desk, to_end: bool
) -> None:
    """The agent was stopped, and the node goes on: its owner has what they may have elsewhere meanwhile."""
    heard.report("login-2", there("uni-1", kind="ssm"), agent="second")
    elsewhere = [there("1-1"), there("2-1")]
    if to_end:  # nothing but this keeps it from being granted again
        (session,) = sessions(heard.store, {"nlp1"})
        ask_to_end(heard.store, heard.books, session, Principal("nlp1", ()), 5)
        elsewhere = []
    for _ in range(2 * 3600 // SWEEP + 2):
        for _ in range(3):
            heard.clock.now += SWEEP // 3
            heard.report("login-1", *elsewhere, agent="first")
        assert (swept(heard, "uni-1", "login-2") is not None) == to_end
    assert heard.claims() == [each.claim for each in elsewhere], "it does not count"
    assert (heard.open("login-1", "3-1") is None) == to_end


def test_what_aws_lists_no_longer_on_a_node_that_is_silent_is_forgotten_an_hour_later(heard: Desk) -> None:
    """An hour after the last question; until then its owner is told of it."""
    heard.report("login-2", there("uni-1", kind="ssm"), agent="second")
    pass_time(heard, 2 * SWEEP)
    assert swept(heard, "uni-1", "login-2") is None
    heard.clock.now += FORGOTTEN_SECONDS
    heard.report("login-1", agent="first")
    assert "on login-2, which" in told(heard)
    heard.clock.now += FORGOTTEN_SECONDS + 1
    heard.report("login-1", agent="first")
    assert "login-2" not in told(heard)


def told(desk: Desk) -> str:
    found = desk.place("nlp1").found
    assert isinstance(found, Placed)
    return found.why

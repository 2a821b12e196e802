"""Session Manager asks nobody before a session begins: who is one too many there, and who is not limited."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from api.auth.principal import Principal
from api.db.login_store import LoginStore
from api.services.login_administrators import REMEMBERED_SECONDS
from api.services.login_leases import ask_to_end, find, sessions
from api.services.login_reports import Answer, OpenSession
from api.services.login_rules import Rules
from hpctools.login.limits import Refused
from hpctools.login.placement import Placed
from hpctools.site import load
from tests.api.services.test_login import HEARTBEAT, Clock, Desk, there


@pytest.fixture
def desk(engine: Engine, site_path: Path) -> Iterator[Desk]:
    """Two sessions each; three nodes that have reported ten seconds ago."""
    clock = Clock()
    rules = replace(Rules.of(load(site_path)), per_user=2)
    made = Desk(LoginStore(engine, clock), engine, rules, clock)
    for node in ("login-1", "login-2", "login-3"):
        made.report(node)
    clock.now += 10
    return made


def fresh(claim: str, user: str = "nlp1", **known: Any) -> OpenSession:
    """A session of Session Manager's that began since the last report."""
    return there(claim, user, kind="ssm", origin="", age=4.0, **known)


def test_the_third_of_two_is_told_why_and_ends_also_when_its_node_knows_of_it_first(desk: Desk) -> None:
    """It takes CloudTrail some seconds to tell of a session; its node's report comes before that."""
    assert desk.open("login-1", "1-1", origin="192.0.2.7") is None
    assert desk.open("login-2", "2-1") is None
    told = desk.report("login-3", fresh("uni-3"))
    assert told.end == ("uni-3",)
    lines = told.tell["uni-3"].splitlines()
    assert lines[0] == "nlp1: you have 2 sessions on the login nodes, and the limit is 2:"
    assert [line.split(",")[0] for line in lines[1:]] == [
        "  1: login-1", "  2: login-2", "To end one: log out there",
    ]  # fmt: skip
    # The function's question comes later, and gets the same answer; so does the next report.
    refused = desk.open("login-3", "uni-3", kind="ssm")
    assert refused is not None
    assert refused.message == told.tell["uni-3"]
    assert desk.report("login-3", fresh("uni-3")) == told
    desk.report("login-3")
    assert desk.claims() == ["1-1", "2-1"]


def test_of_several_new_ones_the_oldest_stay(desk: Desk) -> None:
    new = [replace(fresh(f"uni-{age}"), age=float(age)) for age in (1, 3, 2)]
    told = desk.report("login-1", *new, fresh("other-1", "nlp2"))
    assert told.end == ("uni-1",)
    assert set(told.tell) == {"uni-1"}


def test_a_departments_limit_holds_for_them_too(desk: Desk) -> None:
    desk.rules = replace(desk.rules, per_department=2)
    assert desk.open("login-1", "1-1", "nlp1") is None
    told = desk.report("login-2", replace(fresh("uni-1", "nlp2"), age=5.0), fresh("uni-2", "nlp3"))
    assert told.end == ("uni-2",)
    assert told.tell["uni-2"].startswith("nlp3: nlp has 2 sessions on the login nodes, and its limit is 2.")


def test_who_was_let_in_or_was_there_before_stays(desk: Desk) -> None:
    """By the function; while their node could not ask; before their node's last report."""
    desk.open("login-1", "1-1")
    assert desk.open("login-1", "uni-2", kind="ssm") is None
    assert desk.report("login-1", there("1-1"), fresh("uni-2")).end == ()
    assert desk.report("login-2", replace(fresh("uni-3"), age=100.0)).end == ()
    desk.clock.now += HEARTBEAT
    desk.report("login-1", there("1-1"), fresh("uni-2"))
    assert desk.open("login-2", "9-9") is not None
    assert desk.report("login-3", fresh("uni-4")).end == ()
    assert desk.report("login-4", fresh("uni-5")).end == ()


def test_the_account_of_those_whom_nobody_names_is_several_people(desk: Desk) -> None:
    new = [fresh(f"uni-{number}", "ssm-user") for number in range(5)]
    assert desk.report("login-1", *new) == Answer(True)


def test_who_comes_by_ssh_was_asked_for_and_is_not_ended(desk: Desk) -> None:
    for number in range(3):
        assert desk.report(f"login-{number + 1}", there(f"{number}-1", age=4.0)) == Answer(True)


def test_who_wanted_their_session_ended_is_told_nothing_and_gets_no_lease_for_it(desk: Desk) -> None:
    desk.report("login-1", fresh("uni-1"))
    (number,) = (each.id for each in sessions(desk.store, {"nlp1"}))
    found = find(desk.store, number)
    assert found is not None
    ask_to_end(desk.store, desk.books, found, Principal("nlp1", ()), 5)
    assert desk.report("login-1", fresh("uni-1")) == Answer(True, end=("uni-1",))
    refused = desk.open("login-1", "uni-1", kind="ssm")
    assert refused == Refused(f"nlp1: session {number} is to end, as somebody asked.", ())
    assert desk.open("login-2", "5-1") is None
    refused = desk.open("login-3", "6-1")
    assert refused is not None
    assert refused.message.endswith("Please try again in some seconds, when it has ended.")


def test_a_lease_learns_from_its_node_that_its_owner_is_an_administrator(desk: Desk) -> None:
    """Of a group: whoever asked for the lease knew names only. Then it counts no more, and is audited."""
    assert desk.open("login-1", "uni-1", kind="ssm") is None
    assert desk.open("login-1", "uni-2", kind="ssm") is None
    desk.report("login-1", *(fresh(claim, administrator=True) for claim in ("uni-1", "uni-2", "uni-3")))
    assert [each.administrator for each in sessions(desk.store, {"nlp1"})] == [True] * 3
    assert desk.open("login-2", "uni-4", kind="ssm") is None
    assert desk.audited() == [("node", "login.administrator", "nlp1")] * 3


def test_who_was_one_too_many_stays_when_they_turn_out_to_be_an_administrator(desk: Desk) -> None:
    """Their node's directory did not know it for a moment: no later report took that back."""
    assert (desk.open("login-1", "1-1"), desk.open("login-2", "2-1")) == (None, None)
    assert desk.report("login-3", fresh("uni-3")).end == ("uni-3",)
    told = desk.report("login-3", fresh("uni-3", administrator=True))
    assert (told.end, dict(told.tell)) == ((), {})
    assert desk.open("login-3", "uni-3", kind="ssm") is None
    assert [each.ending for each in sessions(desk.store, {"nlp1"})] == [False] * 3
    assert desk.report("login-3", fresh("uni-3")).end == ()


@pytest.mark.parametrize("first", ["too many", "asked"])
def test_what_somebody_asked_to_end_ends_whoever_its_owner_is(desk: Desk, first: str) -> None:
    for claim in ("1-1", "2-1") if first == "too many" else ():
        desk.open("login-1", claim)
    desk.report("login-3", fresh("uni-3"))
    found = find(desk.store, max(each.id for each in sessions(desk.store, {"nlp1"})))
    assert found is not None
    assert (found.claim, found.ending) == ("uni-3", first == "too many")
    ask_to_end(desk.store, desk.books, found, Principal("nlp1", ()), 5)
    told = desk.report("login-3", fresh("uni-3", administrator=True))
    assert (told.end, dict(told.tell)) == (("uni-3",), {})


def test_who_was_one_too_many_for_another_account_stays_as_their_own(desk: Desk) -> None:
    assert (desk.open("login-1", "1-1"), desk.open("login-2", "2-1")) == (None, None)
    assert desk.report("login-3", fresh("uni-3")).end == ("uni-3",)
    assert desk.report("login-3", fresh("uni-3", "nlp2")).end == ()


def test_administrators_by_group_get_in_when_their_department_is_full(desk: Desk) -> None:
    desk.rules = replace(desk.rules, per_department=1)
    desk.report("login-1", there("1-1", "nlp1", administrator=True), there("2-1", "nlp2"))
    desk.report("login-1", there("2-1", "nlp2"))
    assert isinstance(desk.place("nlp1").found, Placed)
    assert isinstance(desk.place("nlp3").found, Refused)
    assert desk.open("login-2", "uni-1", "nlp1", kind="ssm") is None
    assert desk.open("login-2", "uni-2", "nlp3", kind="ssm") is not None
    assert [each.administrator for each in sessions(desk.store, {"nlp1"})] == [True]


@pytest.mark.parametrize("forgotten", ["told", "late"])
def test_who_is_an_administrator_no_longer_is_forgotten(desk: Desk, forgotten: str) -> None:
    desk.rules = replace(desk.rules, per_department=1)
    desk.report("login-1", there("1-1", "nlp1", administrator=True))
    desk.report("login-1", there("2-1", "nlp2"), there("3-1", "nlp1", kind="tmux"))
    assert isinstance(desk.place("nlp1").found, Placed)
    if forgotten == "told":
        desk.report("login-1", there("2-1", "nlp2"), there("4-1", "nlp1"))
    else:
        desk.clock.now += REMEMBERED_SECONDS
        desk.report("login-1", there("2-1", "nlp2"))
    assert isinstance(desk.place("nlp1").found, Refused)


def test_who_is_told_of_for_long_is_remembered_for_long(desk: Desk) -> None:
    desk.rules = replace(desk.rules, per_department=1)
    for _ in range(2):
        desk.report("login-1", there("1-1", "nlp1", administrator=True))
        desk.clock.now += REMEMBERED_SECONDS - 1
    desk.report("login-1", there("2-1", "nlp2"))
    assert isinstance(desk.place("nlp1").found, Placed)


def test_where_limits_are_lifted_they_are_for_session_manager_too(desk: Desk) -> None:
    desk.open("login-1", "1-1")
    desk.open("login-1", "2-1")
    assert desk.report("login-2", fresh("uni-1"), unlimited=True).end == ()
    assert desk.open("login-2", "uni-2", kind="ssm") is None
    assert desk.open("login-3", "uni-3", kind="ssm") is not None
    desk.report("login-2", unlimited=False)
    assert desk.open("login-2", "uni-4", kind="ssm") is not None


def test_whose_a_session_is_the_node_says_and_not_who_asked_first_or_last(desk: Desk) -> None:
    """AWS's name of a person (`Anna.Smith@...`) may be another one than the account that Run As gives."""
    desk.report("login-1", fresh("anna-1", "asmith"))
    assert desk.open("login-1", "anna-1", "anna", kind="ssm") is None
    assert (desk.claims("anna"), desk.claims("asmith")) == ([], ["anna-1"])
    assert desk.open("login-2", "anna-2", "anna", kind="ssm") is None
    desk.report("login-2", fresh("anna-2", "asmith"))
    assert (desk.claims("anna"), desk.claims("asmith")) == ([], ["anna-1", "anna-2"])
    assert desk.open("login-3", "3-1", "asmith") is not None
    assert {each.department for each in sessions(desk.store, {"asmith"})} == {desk.rules.department("asmith")}


def test_a_session_that_was_counted_for_another_account_is_one_too_many_for_its_own(desk: Desk) -> None:
    assert (desk.open("login-1", "1-1"), desk.open("login-2", "2-1")) == (None, None)
    assert desk.open("login-3", "uni-3", "anna", kind="ssm") is None
    told = desk.report("login-3", fresh("uni-3"))
    assert told.end == ("uni-3",)
    assert told.tell["uni-3"].startswith("nlp1: you have 2 sessions on the login nodes")
    assert desk.open("login-3", "uni-3", "anna", kind="ssm") is not None


def test_a_session_that_bears_the_name_of_one_that_is_over_is_whose_it_runs_as(desk: Desk) -> None:
    """A false one (sudo, called as its worker) counted for the other person for as long as it lived."""
    desk.open("login-1", "uni-1", kind="ssm")
    desk.report("login-1", fresh("uni-1"))
    desk.report("login-1", replace(fresh("uni-1", "asmith"), age=3.0))
    assert (desk.claims(), desk.claims("asmith")) == ([], ["uni-1"])


@pytest.mark.parametrize("first", ["node", "function"])
@pytest.mark.parametrize("user", ["ssm-user", "uid_4000001"])
def test_a_node_that_knows_nobody_by_name_changes_nobodys_session(desk: Desk, user: str, first: str) -> None:
    """Everybody's account, or a number while the directory is away: it would count for nobody to its end."""
    if first == "node":
        desk.report("login-1", fresh("uni-1", user))
    assert desk.open("login-1", "uni-1", kind="ssm") is None
    desk.report("login-1", fresh("uni-1", user))
    assert (desk.claims(), desk.claims(user)) == (["uni-1"], [])


def test_a_number_is_somebody_as_soon_as_its_node_knows_the_name(desk: Desk) -> None:
    """A directory that was away for a moment had a session count for nobody, for days."""
    desk.report("login-1", fresh("uni-1", "uid_4000001"))
    desk.report("login-1", replace(fresh("uni-1"), age=14.0))
    assert (desk.claims(), desk.claims("uid_4000001")) == (["uni-1"], [])
    assert desk.open("login-2", "2-1") is None
    assert desk.open("login-2", "3-1") is not None

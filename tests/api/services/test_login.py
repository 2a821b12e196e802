"""Leases, reports and places, on both databases."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.schema import CreateTable

from api.auth.principal import Principal
from api.db.access_models import AuditEntry
from api.db.engine import connect, reading, writing
from api.db.login_models import ADMINISTRATORS, FORMER, LEASES, NODES
from api.db.login_store import LoginStore, Moment
from api.services.login_forgetting import (
    FORGET_SECONDS,
    TELL_SECONDS,
    forget,
    former_addresses,
)
from api.services.login_leases import Asked, close_lease, find, open_lease, sessions
from api.services.login_nodes import Drain, Way, drains, known_nodes, place_user, set_drain
from api.services.login_reports import Answer, OpenSession, Report, take
from api.services.login_rules import Rules
from hpctools.errors import UnreachableError
from hpctools.login.limits import Refused
from hpctools.login.placement import Nowhere, Placed, Wish
from hpctools.site import load

HEARTBEAT = 30


@dataclass
class Clock:
    now: int = 1_000_000

    def __call__(self) -> int:
        return self.now


@dataclass
class Desk:
    """The service's login part, and nodes that report to it."""

    store: LoginStore
    books: Engine
    rules: Rules
    clock: Clock
    reports: int = 0

    def open(self, node: str, claim: str, user: str = "nlp1", **known: Any) -> Refused | None:
        return open_lease(self.store, self.rules, Asked(node, claim, user, **known))

    def report(self, node: str, *open_: OpenSession, **known: Any) -> Answer:
        self.reports += 1
        facts: dict[str, Any] = {"agent": "agent-1", "sequence": self.reports, "sample_age": 0.0}
        facts |= {"address": "", "cpus": 16, "cpu": 0.1, "memory": 0.1, "draining": False, "unlimited": False}
        said = Report(node, sessions=open_, **facts | known)
        return take(self.store, self.books, self.rules, said, "node")

    def place(self, user: str, **wish: Any) -> Way:
        return place_user(self.store, self.rules, Wish(user, **wish))

    def drain(self, node: str, *, draining: bool, why: str = "") -> None:
        set_drain(self.store, self.books, node, Drain(draining, why), Principal("ops", ()), 5)

    def claims(self, user: str = "nlp1") -> list[str]:
        return [each.claim for each in sessions(self.store, {user})]

    def audited(self) -> list[tuple[str, str, str]]:
        with reading(self.books) as session:
            return [(e.principal, e.action, e.subject) for e in session.scalars(select(AuditEntry))]


def there(claim: str, user: str = "nlp1", **known: Any) -> OpenSession:
    return replace(OpenSession(claim, user, "ssh", "192.0.2.7", 100.0, False), **known)


@pytest.fixture
def desk(engine: Engine, site_path: Path) -> Iterator[Desk]:
    clock = Clock()
    rules = replace(Rules.of(load(site_path)), per_user=2)
    return Desk(LoginStore(engine, clock), engine, rules, clock)


def test_the_third_of_two_sessions_is_refused_wherever_and_however_it_comes(desk: Desk) -> None:
    assert desk.open("login-1", "1-1", origin="192.0.2.7") is None
    assert desk.open("login-2", "1-1", kind="ssm") is None
    desk.clock.now += 5
    refused = desk.open("login-3", "1-1")
    assert refused is not None
    assert refused.message.splitlines() == [
        "nlp1: you have 2 sessions on the login nodes, and the limit is 2:",
        "  1: login-1, for 5 s, from 192.0.2.7",
        "  2: login-2, for 5 s, from Session Manager",
        "To end one: log out there, or hp-login --end 1",
    ]
    assert desk.open("login-3", "1-1", "nlp2") is None


def test_who_asks_again_for_the_same_session_has_it(desk: Desk) -> None:
    assert [desk.open("login-1", "1-1") for _ in range(3)] == [None] * 3
    assert desk.claims() == ["1-1"]


def test_a_session_that_ends_makes_room_at_once(desk: Desk) -> None:
    desk.open("login-1", "1-1")
    desk.open("login-1", "2-1")
    assert desk.open("login-2", "3-1") is not None
    assert close_lease(desk.store, "login-1", "1-1")
    assert not close_lease(desk.store, "login-1", "1-1")
    assert desk.open("login-2", "3-1") is None


def test_what_the_node_no_longer_has_does_not_refuse_its_owner(desk: Desk) -> None:
    desk.open("login-1", "1-1")
    desk.open("login-1", "2-1", kind="ssm")
    assert desk.open("login-1", "3-1", living=frozenset({"1-1"})) is not None
    # Session Manager's is not among sshd's, and stays.
    assert desk.open("login-1", "3-1", living=frozenset()) is None
    assert desk.claims() == ["2-1", "3-1"]


def test_what_is_over_for_certain_is_forgotten_at_once(desk: Desk) -> None:
    """Also what no report has seen; what asks is not over, whatever is said."""
    desk.report("login-1")
    desk.open("login-1", "1-1")
    desk.open("login-1", "2-1")
    assert desk.open("login-2", "1-1", gone=frozenset({"2-1"})) is not None
    assert desk.open("login-1", "3-1", gone=frozenset({"2-1", "3-1", "9-9"})) is None
    assert desk.claims() == ["1-1", "3-1"]
    desk.report("login-1", gone=frozenset({"3-1"}))
    assert desk.claims() == ["1-1"]
    assert [node.sessions for node in known_nodes(desk.store, desk.rules, {})] == [1]


def test_sessions_of_a_node_that_crashed_are_forgotten_after_a_heartbeat(desk: Desk) -> None:
    desk.report("login-1", there("1-1"), there("2-1"))
    for seconds in (10, 10, 9):  # else the service was away, and not the node
        desk.clock.now += seconds
        desk.report("login-2", agent="second")
    assert desk.open("login-2", "3-1") is not None
    desk.clock.now += 1
    assert desk.open("login-2", "3-1") is None


def names(desk: Desk) -> list[str]:
    return [each.node.name for each in known_nodes(desk.store, desk.rules, drains(desk.books))]


def former(desk: Desk) -> dict[str, tuple[str, int]]:
    return {each.address: (each.node, each.left_seconds_ago) for each in former_addresses(desk.store)}


def forget_by_hand(desk: Desk, node: str) -> str:
    return forget(desk.store, desk.books, desk.rules, node, Principal("ops", ()), 5)


def test_a_node_that_is_gone_frees_its_leases_and_is_told_to_balancers(desk: Desk) -> None:
    desk.report("login-1", there("1-1"), address="10.0.0.1")
    desk.report("login-2", address="10.0.0.2")
    assert forget_by_hand(desk, "login-1") == "reports"
    desk.clock.now += HEARTBEAT + 1
    desk.report("login-2", address="10.0.0.2")
    assert forget_by_hand(desk, "login-1") == "forgotten"
    assert forget_by_hand(desk, "login-1") == "unknown"
    assert (names(desk), desk.claims(), former(desk)) == (["login-2"], [], {"10.0.0.1": ("login-1", 0)})
    assert ("ops", "login.forget", "login-1") in desk.audited()
    desk.report("login-3", address="10.0.0.1")
    assert former(desk) == {}, "somebody has it again"


def test_a_node_that_was_drained_and_never_came_is_forgotten_too(desk: Desk) -> None:
    desk.drain("login-9", draining=True)
    assert names(desk) == ["login-9"]
    assert forget_by_hand(desk, "login-9") == "forgotten"
    assert names(desk) == []


def test_a_node_is_forgotten_by_itself_after_a_week(desk: Desk) -> None:
    """Not one that is drained, nor before any agent has told that time passes."""
    desk.report("login-1", address="10.0.0.1")
    desk.report("login-2", address="10.0.0.2")
    desk.drain("login-2", draining=True)
    desk.clock.now += FORGET_SECONDS + 1
    desk.report("login-3", agent="other", sequence=2)
    assert names(desk) == ["login-1", "login-2", "login-3"], "not each report looks"
    desk.report("login-3", agent="other", sequence=101)
    assert names(desk) == ["login-2", "login-3"]
    assert former(desk) == {}, "its sshd may work: perhaps the agents' token had run out"


def test_an_address_that_was_given_up_is_told_for_a_week(desk: Desk) -> None:
    desk.report("login-1", address="10.0.0.1")
    desk.report("login-1", sequence=2, address="10.0.0.9")
    assert former(desk) == {"10.0.0.1": ("login-1", 0)}
    desk.clock.now += TELL_SECONDS
    desk.report("login-3", agent="other", sequence=201)
    assert former(desk) == {}


def test_an_address_that_changes_is_told_to_balancers(desk: Desk) -> None:
    """A node that says none (an older agent) has not moved; one that another node has is not told."""
    desk.report("login-1", address="10.0.0.1")
    desk.report("login-1", address="")
    assert former(desk) == {}
    assert [each.address for each in known_nodes(desk.store, desk.rules, {})] == ["10.0.0.1"]
    desk.report("login-1", address="10.0.0.9")
    desk.clock.now += 7
    assert former(desk) == {"10.0.0.1": ("login-1", 7)}
    desk.report("login-2", address="10.0.0.9")
    desk.report("login-1", address="10.0.0.1")
    assert former(desk) == {}


def test_a_report_is_the_truth_about_a_node(desk: Desk) -> None:
    desk.open("login-1", "1-1", origin="198.51.100.1")
    desk.open("login-2", "9-9")
    desk.clock.now += 20
    assert desk.report("login-1", there("2-1"), there("3-1", "nlp2", kind="tmux")).taken
    # 1-1 is gone; 2-1 was opened while the service was away, above the limit or not.
    assert desk.claims() == ["9-9", "2-1"]
    assert [each.since for each in sessions(desk.store, {"nlp1"}, "login-1")] == [desk.clock.now - 100]


def test_a_session_that_has_just_begun_stays_until_its_node_has_seen_it(desk: Desk) -> None:
    """On a busy node it takes seconds from the question to a process that looks like a session."""
    desk.open("login-1", "1-1")
    desk.open("login-1", "2-1")
    desk.clock.now += 14
    desk.report("login-1", there("2-1"))
    assert desk.claims() == ["1-1", "2-1"]
    desk.report("login-1")
    assert desk.claims() == ["1-1"]
    desk.clock.now += 2
    desk.report("login-1", sample_age=1.5)
    assert desk.claims() == ["1-1"]
    desk.report("login-1")
    assert desk.claims() == []


def test_a_report_that_was_overtaken_is_not_taken(desk: Desk) -> None:
    desk.report("login-1", there("1-1"), sequence=7)
    assert not desk.report("login-1", sequence=6).taken
    assert not desk.report("login-1", sequence=7).taken
    assert desk.claims() == ["1-1"]
    assert desk.report("login-1", sequence=1, agent="agent-2").taken


def test_departments_have_their_own_limit(desk: Desk) -> None:
    desk.rules = replace(desk.rules, per_department=3, of_departments={"cv": 1})
    for number, user in enumerate(["nlp1", "nlp2", "nlp3"]):
        assert desk.open("login-1", f"{number}-1", user) is None
    assert desk.open("login-1", "8-1", "cv1") is None
    assert desk.open("login-2", "9-1", "cv2") is not None
    refused = desk.open("login-2", "9-1", "nlp1")
    assert refused is not None
    assert refused.message.startswith("nlp1: nlp has 3 sessions on the login nodes, and its limit is 3.")
    assert desk.open("login-2", "7-1", "somebody-of-none") is None


def test_the_number_of_a_session_is_nobody_elses_afterwards(desk: Desk) -> None:
    """Who has read it ends another person's session with it, and a drain takes that for one it has ended."""
    desk.open("login-1", "1-1", "nlp1")
    ((first,),) = [[each.id for each in sessions(desk.store, None)]]
    close_lease(desk.store, "login-1", "1-1")
    desk.open("login-1", "2-1", "nlp2")
    assert [each.id > first for each in sessions(desk.store, None)] == [True]


def test_leases_of_a_release_that_gave_numbers_twice_are_made_anew(tmp_path: Path, site_path: Path) -> None:
    engine, clock = connect(f"sqlite:///{tmp_path}/books.db"), Clock()
    with closing(sqlite3.connect(tmp_path / "books.db.login")) as file:
        for table in (NODES, LEASES, ADMINISTRATORS, FORMER):
            words = str(CreateTable(table).compile(engine))
            file.execute(words.replace(" AUTOINCREMENT", ""))
    desk = Desk(LoginStore(engine, clock), engine, Rules.of(load(site_path)), clock)
    for claim in ("1-1", "2-1", "3-1"):
        desk.open("login-1", claim)
        close_lease(desk.store, "login-1", claim)
    desk.open("login-1", "4-1")
    assert [each.id for each in sessions(desk.store, None)] == [4]
    engine.dispose()


def test_a_department_that_is_renamed_has_the_sessions_of_its_people(desk: Desk) -> None:
    """So has one to which somebody moves: what began before the site file was changed counts there, too."""
    desk.rules = replace(desk.rules, per_department=2)
    assert [desk.open("login-1", f"{n}-1", f"nlp{n}") for n in (1, 2)] == [None, None]
    renamed = {name: "language" if of == "nlp" else of for name, of in desk.rules.departments.items()}
    desk.rules = replace(desk.rules, departments=renamed)
    desk.report("login-1", there("1-1", "nlp1"), there("2-1", "nlp2"))
    refused = desk.open("login-2", "3-1", "nlp3")
    assert refused is not None
    assert refused.message.startswith("nlp3: language has 2 sessions on the login nodes, and its limit is 2.")
    assert {each.department for each in sessions(desk.store, None)} == {"language"}


def test_administrators_are_not_limited_not_counted_and_told_in_the_audit_trail(desk: Desk) -> None:
    desk.rules = replace(desk.rules, administrators=frozenset({"root", "nlp1"}), per_department=1)
    for number in range(4):
        assert desk.open("login-1", f"{number}-1") is None
    assert desk.open("login-1", "8-1", "nlp2") is None
    claims = [there(f"{number}-1") for number in range(4)]
    for _ in range(2):
        desk.report("login-1", *claims, there("9-1", "nlp3", administrator=True))
    assert desk.audited() == [("node", "login.administrator", user) for user in ["nlp1"] * 4 + ["nlp3"]]


def test_limits_that_are_lifted_on_a_node_are_told_in_the_audit_trail(desk: Desk) -> None:
    for unlimited in (False, True, True, False):
        desk.report("login-1", unlimited=unlimited)
    assert desk.audited() == [("node", "login.unlimited", "login-1")] * 2


def test_what_the_store_could_not_note_down_is_audited_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trail has it already when the store fails; the next report comes seconds later."""
    admin, writing, calls = there("9-1", "nlp3", administrator=True), desk.store.writing, iter(range(99))

    @contextmanager
    def failing() -> Iterator[Moment]:
        if next(calls) == 1:
            raise UnreachableError("the database does not answer")
        with writing() as moment:
            yield moment

    monkeypatch.setattr(desk.store, "writing", failing)
    with pytest.raises(UnreachableError):
        desk.report("login-1", admin, unlimited=True)
    for _ in range(2):
        desk.report("login-1", admin, unlimited=True)
    told = [("node", "login.administrator", "nlp3"), ("node", "login.unlimited", "login-1")]
    assert desk.audited() == told
    desk.report("login-1")
    desk.report("login-1", admin, unlimited=False)
    desk.clock.now += 200
    desk.report("login-1")
    desk.report("login-1", replace(admin, age=1.0), unlimited=True)
    assert desk.audited() == [*told, told[1], *told]


def test_books_that_are_busy_make_no_node_silent(desk: Desk) -> None:
    """Whoever reconciles has them for long: what the trail is to have comes with a later report."""
    desk.report("login-1")
    admin = there("9-1", "nlp3", administrator=True)

    def reports(_: int) -> list[bool]:
        nodes = desk.report("login-1", admin, unlimited=True), desk.report("login-2", there("7-1"))
        return [answer.taken for answer in nodes]

    with ThreadPoolExecutor(1) as pool, writing(desk.books):
        assert pool.submit(reports, 0).result(timeout=20) == [True, True]
    assert desk.audited() == []
    assert desk.claims() == ["7-1"]
    reports(1)
    reports(2)
    told = [("node", "login.administrator", "nlp3"), ("node", "login.unlimited", "login-1")]
    assert desk.audited() == told


def test_an_administrators_session_stays_until_the_trail_has_it(desk: Desk) -> None:
    """What ended while a reconciliation was at work was in no trail; others' sessions go at once."""
    desk.report("login-1")
    seen = (there("9-1", "nlp3", administrator=True), there("8-1", "nlp3", administrator=True), there("7-1"))
    with ThreadPoolExecutor(1) as pool, writing(desk.books):
        assert pool.submit(desk.report, "login-1", *seen).result(timeout=20).taken
        assert close_lease(desk.store, "login-1", "8-1")
        assert pool.submit(desk.report, "login-1").result(timeout=20).taken
    assert (desk.audited(), desk.claims()) == ([], [])
    assert sorted(desk.claims("nlp3")) == ["8-1", "9-1"]
    desk.report("login-1")
    assert desk.audited() == [("node", "login.administrator", "nlp3")] * 2
    desk.report("login-1")
    assert desk.claims("nlp3") == []
    assert len(desk.audited()) == 2


def test_no_question_for_a_lease_takes_what_the_trail_is_still_to_have(desk: Desk) -> None:
    """An agent asks for an administrator by group as for anybody while the directory is away."""
    desk.report("login-1")
    seen = (there("9-1", "nlp3", administrator=True), there("8-1", "nlp3", administrator=True))
    with ThreadPoolExecutor(1) as pool, writing(desk.books):
        assert pool.submit(desk.report, "login-1", *seen).result(timeout=20).taken
        over = {"living": frozenset(), "gone": frozenset({"9-1"})}
        assert pool.submit(desk.open, "login-1", "7-1", "nlp3", **over).result(timeout=20) is None
    assert sorted(desk.claims("nlp3")) == ["7-1", "8-1", "9-1"]


def test_on_a_node_that_never_reports_an_administrators_session_ends_at_once(desk: Desk) -> None:
    """Session Manager's function tells of it; nobody else would."""
    desk.rules = replace(desk.rules, administrators=frozenset({"nlp1"}))
    desk.open("login-9", "uni-1", kind="ssm")
    assert close_lease(desk.store, "login-9", "uni-1")
    assert desk.claims() == []


def test_limits_hold_when_everybody_comes_at_once(desk: Desk) -> None:
    """Twenty people, eight sessions each, all at the same time: two each."""
    wanted = [(f"user{number % 20}", f"login-{number % 4}", f"{number}-1") for number in range(160)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda one: desk.open(one[1], one[2], one[0]), wanted))
    admitted = Counter(user for (user, _, _), refused in zip(wanted, answers, strict=True) if refused is None)
    assert admitted == {f"user{number}": 2 for number in range(20)}


def test_two_hundred_who_come_at_once_are_spread_before_anybody_arrives(desk: Desk) -> None:
    for number in range(4):
        desk.report(f"login-{number}")
    with ThreadPoolExecutor(8) as pool:
        ways = list(pool.map(lambda number: desk.place(f"user{number}").found, range(200)))
    counts = Counter(found.node for found in ways if isinstance(found, Placed))
    assert len(counts) == 4
    assert all(abs(count - 50) <= 1 for count in counts.values())
    assert [(node.sessions, node.placed) for node in known_nodes(desk.store, desk.rules, {})] == [
        (0, counts[f"login-{number}"]) for number in range(4)
    ]


def test_who_arrives_gives_their_place_back_and_who_does_not_loses_it(desk: Desk) -> None:
    desk.report("login-1")
    for _ in range(5):
        desk.place("nlp1")
    desk.place("nlp2")
    assert [(n.sessions, n.placed) for n in known_nodes(desk.store, desk.rules, {})] == [(0, 2)]
    desk.open("login-1", "1-1")
    assert [(n.sessions, n.placed) for n in known_nodes(desk.store, desk.rules, {})] == [(1, 1)]
    desk.clock.now += 30
    desk.report("login-1", there("1-1"))
    assert [(n.sessions, n.placed) for n in known_nodes(desk.store, desk.rules, {})] == [(1, 0)]


def test_who_is_on_their_way_is_not_there_yet(desk: Desk) -> None:
    desk.report("login-1", there("1-1"))
    desk.place("cv1")
    (node,) = known_nodes(desk.store, desk.rules, {})
    assert (node.sessions, node.placed, node.users) == (1, 1, 1)


def test_who_came_in_without_a_lease_gives_their_place_back_with_their_nodes_report(desk: Desk) -> None:
    """While the service did not answer: counted twice, the node would get fewer people than the others."""
    desk.report("login-1")
    desk.place("nlp1")
    desk.place("nlp2")
    desk.report("login-1", there("1-1"), there("2-1", "nlp2", kind="tmux"))
    assert [(n.sessions, n.placed) for n in known_nodes(desk.store, desk.rules, {})] == [(1, 1)]


def test_somebody_goes_back_to_their_tmux_and_hears_of_a_node_that_went(desk: Desk) -> None:
    desk.report("login-1", there("1-1", kind="tmux"), address="login-1.uni.example")
    desk.report("login-2")
    way = desk.place("nlp1")
    assert (way.found, way.address) == (
        Placed("login-1", "your tmux is on login-1.", ("login-2",)),
        "login-1.uni.example",
    )
    desk.clock.now += HEARTBEAT + 1
    desk.report("login-2")
    found = desk.place("nlp1").found
    assert isinstance(found, Placed)
    assert found.why.startswith("your tmux is on login-1, which does not answer; login-2 is the only node")


def test_who_may_have_no_more_sessions_is_told_before_they_go(desk: Desk) -> None:
    desk.report("login-1", there("1-1"), there("2-1"))
    found = desk.place("nlp1").found
    assert isinstance(found, Refused)
    assert found.message.startswith("nlp1: you have 2 sessions")


def test_a_node_whose_sshd_refuses_people_is_avoided_until_it_does_not(desk: Desk) -> None:
    desk.report("login-1")
    desk.report("login-2", closed=True)
    nodes = known_nodes(desk.store, desk.rules, drains(desk.books))
    assert [(n.node.name, n.state) for n in nodes] == [("login-1", "up"), ("login-2", "closed")]
    for user in ("nlp1", "nlp2", "cv1", "cv2"):
        found = desk.place(user).found
        assert isinstance(found, Placed)
        assert (found.node, found.others) == ("login-1", ("login-2",))
    desk.report("login-1", closed=True)
    desk.report("login-2")
    found = desk.place("nlp1").found
    assert isinstance(found, Placed)
    assert found.node == "login-2"


def test_drained_nodes_get_nobody(desk: Desk) -> None:
    desk.report("login-1")
    desk.report("login-2", draining=True)
    desk.drain("login-3", draining=True, why="new kernel")
    nodes = known_nodes(desk.store, desk.rules, drains(desk.books))
    assert [(n.node.name, n.state, n.why) for n in nodes] == [
        ("login-1", "up", ""),
        ("login-2", "draining", "drained on the node itself"),
        ("login-3", "draining", "new kernel"),
    ]
    assert isinstance(desk.place("nlp1").found, Placed)
    desk.drain("login-1", draining=True)
    nowhere = Nowhere("login-1, login-2 are being drained, and there is no other login node")
    assert desk.place("nlp2").found == nowhere
    # Also for a node that comes back after its drain, and for one that is new here.
    assert desk.report("login-1") == Answer(True, draining=True, drained=True)
    assert desk.report("login-2", draining=True) == Answer(True, draining=True), "by its own word alone"
    desk.report("login-3")
    assert isinstance(desk.place("nlp2").found, Nowhere)
    desk.drain("login-3", draining=False)
    assert isinstance(desk.place("nlp2").found, Placed)


def test_what_is_counted_between_reports_is_what_the_next_one_finds(desk: Desk) -> None:
    """Placing looks at a number that is kept up; here against the leases themselves."""
    desk.rules = replace(desk.rules, per_user=9)
    for node in ("login-1", "login-2"):
        desk.report(node)
    dice = Random(3)
    for number in range(120):
        node, user = f"login-{dice.choice((1, 2))}", f"user{dice.randrange(6)}"
        match dice.randrange(4):
            case 0:
                desk.open(node, f"{number}-1", user)
            case 1:
                desk.open(node, f"{number}-1", user, living=frozenset(desk.claims(user)[:2]))
            case 2:
                desk.place(user, avoid=dice.choice(((), (node,))))
            case _ if mine := sessions(desk.store, {user}):
                close_lease(desk.store, mine[0].node, mine[0].claim)
        with desk.store.reading() as moment:
            kept = {row.name: row.taken for row in moment.rows(select(NODES))}
        found = {n.node.name: n.sessions + n.placed for n in known_nodes(desk.store, desk.rules, {})}
        assert kept == found


def test_a_node_without_a_word_for_long_is_silent(desk: Desk) -> None:
    desk.report("login-1")
    desk.clock.now += HEARTBEAT + 1
    desk.report("login-2")
    assert [(n.node.name, n.state) for n in known_nodes(desk.store, desk.rules, {})] == [
        ("login-1", "silent"),
        ("login-2", "up"),
    ]


def test_a_drain_and_its_end_are_remembered_and_audited(desk: Desk) -> None:
    for wanted in (Drain(True, "new kernel"), Drain()):
        desk.drain("login-1", draining=wanted.draining, why=wanted.why)
        assert drains(desk.books) == {"login-1": wanted}
    assert desk.audited() == [("ops", "login.drain", "login-1")] * 2


def test_another_service_on_the_same_database_sees_the_same(desk: Desk) -> None:
    desk.report("login-1", there("1-1"))
    other = LoginStore(desk.books, desk.clock)
    assert [each.claim for each in sessions(other, None)] == ["1-1"]
    (number,) = (each.id for each in sessions(other, None))
    assert find(other, number) is not None
    assert find(other, number + 1) is None
    assert open_lease(other, desk.rules, Asked("login-2", "1-1", "nlp1")) is None
    assert desk.open("login-2", "2-1") is not None


def test_only_a_file_that_nobody_is_at_work_on_answers_at_once(desk: Desk) -> None:
    a_file = desk.books.dialect.name == "sqlite"
    assert desk.store.answers_at_once() is a_file
    with desk.store.writing():
        assert not desk.store.answers_at_once()
    with desk.store.reading():
        assert desk.store.answers_at_once() is a_file

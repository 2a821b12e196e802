"""Two replicas of the service and three login nodes through any course of logins and faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from api.db.engine import connect
from api.db.login_models import LEASES, NODES
from api.db.login_store import LoginStore
from api.db.migrate import upgrade
from api.services.login_leases import Asked, close_lease, open_lease
from api.services.login_reports import OpenSession, Report, take
from api.services.login_rules import Rules
from hpctools.site import load

PER_USER, OWN = 2, 2
"""Of a person on all nodes together, and on each one by itself."""
HEARTBEAT, EVERY, SILENCE = 30, 10, 12
USERS = ("ann", "bob")
NAMES = ("login-1", "login-2", "login-3")


@dataclass
class Machine:
    """A login node, as people and its agent have it.

    Attributes:
        open: who has which session, and since when.
        until: when those that are known stop to count while nothing is heard of it.
        known: those that the service was told of before the node fell silent, and are not known to be over.
        over: claims that ended and were not told.
    """

    name: str
    up: bool = True
    cut: bool = False
    boots: int = 0
    reports: int = 0
    heard: int = 0
    until: int = 0
    open: dict[str, tuple[str, int]] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)

    @property
    def reachable(self) -> bool:
        return self.up and not self.cut

    def of(self, user: str) -> int:
        return sum(owner == user for owner, _ in self.open.values())


class Campus:
    """All of them, and what has to hold at each moment."""

    def __init__(self, replicas: list[LoginStore], rules: Rules, clock: list[int]) -> None:
        self.replicas, self.rules, self.clock = replicas, rules, clock
        self.nodes = {name: Machine(name) for name in NAMES}
        self.made = 0
        self.dead: list[tuple[str, str, int]] = []
        self.newest = 0
        self.ever_cut = False
        for node in self.nodes.values():
            self.report(node)

    @property
    def now(self) -> int:
        return self.clock[0]

    @property
    def store(self) -> LoginStore:
        """One replica after the other answers."""
        self.made += 1
        return self.replicas[self.made % len(self.replicas)]

    def report(self, node: Machine) -> None:
        if not node.reachable:
            return
        self.answered(report=True)
        node.reports += 1
        node.heard = self.newest = self.now
        node.until = self.now + HEARTBEAT
        told = tuple(
            OpenSession(claim, user, "ssh", "", float(self.now - since), False)
            for claim, (user, since) in node.open.items()
        )
        store = self.store
        gone, node.over = frozenset(node.over), set()
        said = Report(
            node.name, f"{node.name}-{node.boots}", node.reports, 0.0, "", 4, 0, 0, False, False, told, gone
        )
        take(store, store._books, self.rules, said, "node")
        node.known = {claim: user for claim, (user, _) in node.open.items()}

    def answered(self, *, report: bool = False) -> None:
        """The service is asked: what it knew before a silence of all nodes counts for a heartbeat more.

        Once for all who ask, and once more for the first report.
        """
        if not self.newest or self.now - self.newest < SILENCE:
            return
        longer = self.now + HEARTBEAT

        def outlasting(name: str, until: int) -> int:
            waited_for = self.nodes[name].heard > self.newest - HEARTBEAT and until > self.newest
            return longer if waited_for and (report or until < self.newest + SILENCE + HEARTBEAT) else until

        for name, node in self.nodes.items():
            node.until = outlasting(name, node.until)
        self.dead = [(user, name, outlasting(name, until)) for user, name, until in self.dead]

    def login(self, node: Machine, user: str) -> None:
        if not node.up or node.of(user) >= OWN:
            return
        claim = f"{node.name}-{self.made}"
        if node.reachable:
            self.answered()
            gone, node.over = frozenset(node.over), set()
            if open_lease(self.store, self.rules, Asked(node.name, claim, user, gone=gone)) is not None:
                assert self.may_count(user) >= PER_USER, "refused without a reason"
                return
            node.known[claim] = user
        node.open[claim] = (user, self.now)
        if node.reachable:
            seen = sum(each.of(user) for each in self.nodes.values() if each.reachable)
            assert seen <= PER_USER, "one too many let in among nodes that the service hears"

    def may_count(self, user: str) -> int:
        """Sessions that may keep somebody out: open ones, and those of silent nodes for one heartbeat."""
        count = sum(until > self.now for owner, _, until in self.dead if owner == user)
        for node in self.nodes.values():
            if node.reachable:
                count += node.of(user)
            elif node.up and self.now < node.until:
                count += sum(owner == user for owner in node.known.values())
        return count

    def logout(self, node: Machine, user: str) -> None:
        claim = next((claim for claim, (owner, _) in node.open.items() if owner == user), None)
        if claim is None:
            return
        del node.open[claim]
        if node.reachable:
            close_lease(self.store, node.name, claim)
            node.known.pop(claim, None)
        else:
            node.over.add(claim)

    def cut(self, node: Machine) -> None:
        self.ever_cut = node.cut = True

    def crash(self, node: Machine) -> None:
        """Nobody there can tell the service."""
        if node.up:
            last = self.now + HEARTBEAT if not node.cut else node.until
            self.dead += [(user, node.name, last) for user in node.known.values()]
            node.up, node.open, node.known, node.over = False, {}, {}, set()

    def repair(self, node: Machine) -> None:
        if not node.up:
            node.up, node.boots, node.reports = True, node.boots + 1, 0
        node.cut = False
        self.report(node)

    def step(self) -> None:
        self.clock[0] += EVERY
        for node in self.nodes.values():
            self.report(node)

    def holds(self) -> None:
        for user in USERS:
            total = sum(node.of(user) for node in self.nodes.values())
            assert total <= OWN * len(self.nodes), "beyond the bound that is written down"
            assert self.ever_cut or total <= PER_USER, "beyond the limit, and nothing was ever cut"


@pytest.fixture
def replicas(database_url: str) -> Iterator[tuple[list[LoginStore], list[int]]]:
    """Two replicas with connections of their own to one database, and the clock of all."""
    clock = [1_000_000]
    engines = [connect(database_url) for _ in range(2)]
    upgrade(engines[0])
    yield [LoginStore(engine, lambda: clock[0]) for engine in engines], clock
    for engine in engines:
        engine.dispose()


DEEDS = st.one_of(
    st.tuples(st.sampled_from(["login"] * 4 + ["logout"]), st.sampled_from(NAMES), st.sampled_from(USERS)),
    st.tuples(st.sampled_from(["cut", "crash", "repair", "report"]), st.sampled_from(NAMES)),
    st.just(("step",)),
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(deeds=st.lists(DEEDS, min_size=10, max_size=60))
@pytest.mark.slow
def test_the_limit_holds_and_nobody_is_kept_out_for_longer_than_a_heartbeat(
    replicas: tuple[list[LoginStore], list[int]], site_path: Path, deeds: list[tuple[str, ...]]
) -> None:
    """Exact among nodes that are heard; at most the nodes' own limits otherwise; refused for a reason."""
    stores, clock = replicas
    with stores[0].writing() as moment:
        moment.execute(delete(LEASES))
        moment.execute(delete(NODES))
    rules = replace(Rules.of(load(site_path)), per_user=PER_USER, lease_seconds=HEARTBEAT)
    campus = Campus(stores, rules, clock)
    for name, *where in deeds:
        getattr(campus, name)(*[campus.nodes.get(word, word) for word in where])
        campus.holds()
    clock[0] += HEARTBEAT
    for node in campus.nodes.values():
        campus.repair(node)
        for user in USERS:
            while campus.nodes[node.name].of(user):
                campus.logout(node, user)
    clock[0] += HEARTBEAT
    for node in campus.nodes.values():
        campus.report(node)
    for user in USERS:
        for _ in range(PER_USER):
            before = node.of(user)
            campus.login(node, user)
            assert node.of(user) == before + 1

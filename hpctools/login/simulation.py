"""A day on login nodes, to compare ways of choosing one: pure, and the same for the same seed.

People come by the hour as on a campus, most for a moment and some for the day, in bursts of several
terminals; a few run what they should not on a login node. Many share an address, since a campus stands behind
NAT. Nodes are of two sizes. One is drained in the morning and one crashes in the afternoon.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean, quantiles
from typing import Protocol

from hpctools.login.placement import Home, Node, Placed, Policy, Wish, place

DAY = 86_400
HEARTBEAT = 10
_SAMPLE = 300
_BY_HOUR = (2, 1, 1, 1, 1, 2, 5, 12, 25, 34, 36, 34, 28, 32, 36, 35, 31, 24, 16, 12, 10, 9, 7, 4)
_BURST = (0.55, 0.3, 0.15)
_GAP = 240.0
_HEAVY = 0.03
_ADDRESSES = 40
_BEHIND_NAT = 0.6


@dataclass(frozen=True)
class Visit:
    """A session that somebody wants.

    Attributes:
        start, seconds: when and for how long, in seconds of the day.
        cpus: what its programs keep busy.
    """

    start: float
    seconds: float
    user: str
    address: str
    cpus: float


@dataclass(frozen=True)
class Event:
    """Something that happens to a node at a time of the day."""

    at: float
    node: str
    what: str


@dataclass(frozen=True)
class Day:
    """What happens in a day, whoever chooses."""

    nodes: tuple[Node, ...]
    visits: tuple[Visit, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Outcome:
    """How a day went.

    Attributes:
        sessions: how much more than its part the fullest node has, in the mean and the 95th percentile of the
            day's samples: 0.1 is 10 %.
        cpu: the part of its CPUs that the busiest node uses, likewise.
        returned: of logins by somebody who has a session, the part that came to the node of one.
        overloaded: of all time that sessions last, the part on nodes with more than 90 % of CPUs in use.
        failed: logins that were sent to a node that takes none.
    """

    chooser: str
    logins: int
    sessions: tuple[float, float]
    cpu: tuple[float, float]
    returned: float
    overloaded: float
    failed: int


@dataclass
class Fleet:
    """What is so at a time of the day.

    Attributes:
        nodes: as placement sees them: sessions as they are, CPUs as they were at the last heartbeat.
        busy: CPUs that are in use on each, now.
    """

    nodes: dict[str, Node]
    busy: dict[str, float]
    homes: dict[str, Counter[str]] = field(default_factory=dict)
    heard: int = -1

    def takes(self, name: str) -> bool:
        """Whether a login there would work."""
        node = self.nodes[name]
        return not node.draining and node.silent_for == 0

    def hear(self, now: float) -> None:
        """Let nodes tell what they use, once in a heartbeat."""
        if int(now / HEARTBEAT) == self.heard:
            return
        self.heard = int(now / HEARTBEAT)
        for name, node in self.nodes.items():
            self.nodes[name] = replace(node, cpu=min(1.0, self.busy[name] / node.cpus))

    def change(self, visit: Visit, name: str, by: int) -> None:
        """Let a session begin (1) or end (-1)."""
        node = self.nodes[name]
        self.nodes[name] = replace(node, sessions=node.sessions + by)
        self.busy[name] += by * visit.cpus
        homes = self.homes.setdefault(visit.user, Counter())
        homes[name] += by
        if not homes[name]:
            del homes[name]


class Chooser(Protocol):
    """A way of choosing a node; the name of one."""

    def __call__(self, visit: Visit, fleet: Fleet) -> str:
        """Choose."""


def make_day(nodes: int = 50, users: int = 20_000, seed: int = 7) -> Day:
    """A day of so many people on so many nodes."""
    dice = Random(seed)  # noqa: S311 - a simulation
    fleet = tuple(Node(f"login-{n:02}", cpus=64 if n % 5 == 0 else 32) for n in range(nodes))
    visits = [visit for number in range(users) for visit in _visits(f"user{number}", dice)]
    visits.sort(key=lambda visit: visit.start)
    events = (Event(9.5 * 3600, "login-01", "drain"), Event(14.5 * 3600, "login-02", "crash"))
    return Day(fleet, tuple(visits), events if nodes > 2 else ())


def _visits(user: str, dice: Random) -> Iterator[Visit]:
    number = dice.randrange(_ADDRESSES) if dice.random() < _BEHIND_NAT else f"home-{user}"
    for _ in range(dice.choice((0, 1, 1, 2))):
        hour = dice.choices(range(24), _BY_HOUR)[0]
        start = (hour + dice.random()) * 3600
        for _ in range(dice.choices((1, 2, 3), _BURST)[0]):
            seconds = min(12 * 3600.0, dice.lognormvariate(7.8, 1.3))
            cpus = dice.uniform(2, 12) if dice.random() < _HEAVY else dice.expovariate(25)
            if start < DAY:
                yield Visit(start, seconds, user, f"nat-{number}", cpus)
            start += dice.expovariate(1 / _GAP)


def simulate(day: Day, name: str, choose: Chooser) -> Outcome:
    """Let a day pass with one way of choosing."""
    run = _Run(
        Fleet({node.name: node for node in day.nodes}, dict.fromkeys((n.name for n in day.nodes), 0.0))
    )
    events = list(day.events)
    for visit in day.visits:
        while events and events[0].at <= visit.start:
            run.happen(events.pop(0))
        run.until(visit.start)
        run.login(visit, choose)
    return run.outcome(name, len(day.visits))


class _Run:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._ends: list[tuple[float, int, Visit, str]] = []
        self._number = 0
        self._sampled = 0.0
        self._fullest: list[float] = []
        self._busiest: list[float] = []
        self._again = self._returned = self._failed = 0
        self._lasted = self._suffered = 0.0

    def happen(self, event: Event) -> None:
        """A node is drained, or is gone with all its sessions."""
        self.until(event.at)
        node = self._fleet.nodes[event.node]
        if event.what == "drain":
            self._fleet.nodes[event.node] = replace(node, draining=True)
            return
        for _, _, visit, name in [end for end in self._ends if end[3] == event.node]:
            self._fleet.change(visit, name, -1)
        self._ends = [end for end in self._ends if end[3] != event.node]
        heapq.heapify(self._ends)
        self._fleet.nodes[event.node] = replace(self._fleet.nodes[event.node], silent_for=None)

    def until(self, now: float) -> None:
        """Let sessions end, and look at the nodes every few minutes."""
        while self._sampled + _SAMPLE <= now:
            self._sampled += _SAMPLE
            self._end(self._sampled)
            self._sample()
        self._end(now)
        self._fleet.hear(now)

    def login(self, visit: Visit, choose: Chooser) -> None:
        """Somebody logs in; where they are sent to a node that takes nobody, they try again elsewhere."""
        homes = set(self._fleet.homes.get(visit.user, ()))
        name = choose(visit, self._fleet)
        if not self._fleet.takes(name):
            self._failed += 1
            rest = sorted(other for other in self._fleet.nodes if self._fleet.takes(other))
            name = rest[_digest(visit.user) % len(rest)]
        if homes:
            self._again += 1
            self._returned += name in homes
        self._fleet.change(visit, name, 1)
        self._number += 1
        heapq.heappush(self._ends, (visit.start + visit.seconds, self._number, visit, name))

    def _end(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, _, visit, name = heapq.heappop(self._ends)
            self._fleet.change(visit, name, -1)

    def _sample(self) -> None:
        nodes = [node for name, node in self._fleet.nodes.items() if self._fleet.takes(name)]
        total, cpus = sum(node.sessions for node in nodes), sum(node.cpus for node in nodes)
        used = {node.name: self._fleet.busy[node.name] / node.cpus for node in nodes}
        if total < len(nodes):
            return  # at night one session is an imbalance
        self._fullest.append(max(node.sessions / node.cpus for node in nodes) * cpus / total - 1)
        self._busiest.append(max(used.values()))
        self._lasted += total
        self._suffered += sum(node.sessions for node in nodes if used[node.name] > 0.9)

    def outcome(self, name: str, logins: int) -> Outcome:
        """How it went."""
        return Outcome(
            name,
            logins,
            _mean_and_p95(self._fullest),
            _mean_and_p95(self._busiest),
            self._returned / max(1, self._again),
            self._suffered / max(1.0, self._lasted),
            self._failed,
        )


def rendezvous(policy: Policy) -> Chooser:
    """Our own way."""

    def choose(visit: Visit, fleet: Fleet) -> str:
        homes = {name: Home(count) for name, count in fleet.homes.get(visit.user, {}).items()}
        found = place(Wish(visit.user, homes), list(fleet.nodes.values()), policy)
        assert isinstance(found, Placed)  # noqa: S101 - some node always takes sessions
        return found.node

    return choose


def least_connections(visit: Visit, fleet: Fleet) -> str:
    """HAProxy's `leastconn`: sessions by weight; it sees by itself what is drained or gone."""
    return min(_usable(fleet), key=lambda node: (node.sessions / node.cpus, node.name)).name


def source_hash(visit: Visit, fleet: Fleet) -> str:
    """HAProxy's `balance source` with consistent hashing: by address, weighted."""
    usable = _usable(fleet)
    points = [(node.name, number) for node in usable for number in range(node.cpus // 32)]
    return max(points, key=lambda point: _digest(f"{visit.address}\0{point[0]}\0{point[1]}"))[0]


class RoundRobin:
    """HAProxy's `roundrobin`: one after the other, twice where a node is twice as large."""

    def __init__(self) -> None:
        self._turn = 0

    def __call__(self, visit: Visit, fleet: Fleet) -> str:
        """Choose."""
        turns = [node.name for node in _usable(fleet) for _ in range(node.cpus // 32)]
        self._turn += 1
        return turns[self._turn * 17 % len(turns)]


def _usable(fleet: Fleet) -> Sequence[Node]:
    return [node for name, node in fleet.nodes.items() if fleet.takes(name)]


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _mean_and_p95(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return (values[0], values[0]) if values else (0.0, 0.0)
    return fmean(values), quantiles(values, n=20)[-1]

"""People who log in at the same instant on four login nodes, beside plain sshds on the same machine.

The nodes have real sshds with our PAM stack, an agent each, and the service that says where to go and counts.
The plain sshds are the same program with the same keys and clients, and the machine's own PAM stack. Four
more have that stack and a program in it that does nothing: whatever counts sessions of several nodes has to
ask somebody, so none can take less. Nodes may be silent for minutes before nobody is sent there: one machine
does the work of twelve, and of all clients.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles

from bench.report import Goal
from hpctools.errors import SandboxError
from hpctools.sandbox.blueprint import example_site
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.rise import up
from tests.system.harness import Cluster, until  # type: ignore[import-untyped]
from tests.system.login_rig import LoginRig, Service  # type: ignore[import-untyped]

NODES = tuple(f"login-{number}" for number in range(1, 5))
PLAIN = tuple(f"plain-{number}" for number in range(1, 5))
LEAST = tuple(f"least-{number}" for number in range(1, 5))
_NOTHING = "session optional pam_exec.so quiet /bin/true"
BALANCED_ON = "[sessions, cpu, memory]"
"""By the reference site."""
AT_A_TIME = (1, 4)
"""How many log in at a time, at low rates."""
ADDED_MS, FROM_EVEN = 50.0, 1.0
RESTED = 0.15
"""How busy a node may say that its processors are when a crowd comes: half a minute of it makes that a half,
from where on a node gets fewer people, and nodes tell at different times."""
_AT_ONCE = "at once"
_LIMIT = 300.0
"""Seconds after which a login, or the end of all sessions, is given up."""
_STAY = "echo in; exec sleep 900"
_FIRST_UID = 30_000

Sessions = list[subprocess.Popen[bytes]]


@dataclass(frozen=True)
class Extent:
    """How much of it.

    Attributes:
        people: who log in at the same instant, each with one session.
        rounds: how often they do.
        pairs: logins of each kind at each low rate; at most one for each of the people.
    """

    people: int = 200
    rounds: int = 3
    pairs: int = 200


QUICK = Extent(40, 1, 24)


@dataclass(frozen=True)
class Login:
    """One login.

    Attributes:
        seconds: from the wish to log in until a program of theirs runs there.
        asking: of these, until the service had said where.
    """

    seconds: float
    asking: float = 0.0


@dataclass(frozen=True)
class Logins:
    """What logins took, in milliseconds; `place_p95_ms` of it until the service had said where.

    Attributes:
        by_node: open sessions of the nodes when all are in, of each round.
        p95_by_round: in milliseconds.
    """

    what: str
    logins: int
    p50_ms: float
    p95_ms: float
    most_ms: float
    place_p95_ms: float
    by_node: str = ""
    p95_by_round: str = ""


@dataclass(frozen=True)
class Measured:
    """All of it.

    Attributes:
        from_even: the most that a node's sessions were away from their mean, in any round.
        median_ms: medians of the differences within pairs, ours less plain, by `AT_A_TIME`.
    """

    rows: tuple[Logins, ...]
    from_even: float
    median_ms: Mapping[int, float]

    def added_ms(self, how: str) -> float:
        """The difference of the 95th percentiles."""
        p95 = {row.what: row.p95_ms for row in self.rows}
        return p95[f"ours, {how}"] - p95[f"plain, {how}"]


def goals(found: Measured) -> tuple[Goal, ...]:
    """What was promised. All nodes, the service and all clients share this machine's processors."""
    cores = len(os.sched_getaffinity(0))
    crowd = Goal(
        f"added p95, {_AT_ONCE}, all on {cores} cores", found.added_ms(_AT_ONCE), "ms", "<=", ADDED_MS
    )
    few = [
        goal
        for count in AT_A_TIME
        for goal in (
            Goal(f"added p95, {_few(count)}", found.added_ms(_few(count)), "ms", "<=", ADDED_MS),
            Goal(f"added median of pairs, {_few(count)}", found.median_ms[count], "ms", "<=", ADDED_MS),
        )
    ]
    return (Goal("sessions away from even", found.from_even, "sessions", "<=", FROM_EVEN), *few, crowd)


def _few(count: int) -> str:
    return f"{count} at a time"


def logins(quick: bool) -> Measured:
    """Bring up four login nodes and four plain sshds, and log in.

    Raises:
        SandboxError: somebody does not get in.
    """
    extent = QUICK if quick else Extent()
    with four_nodes(extent.people) as front:
        return _measured(front, extent)


def _measured(front: Front, extent: Extent) -> Measured:
    plain: list[list[Login]] = []
    least: list[list[Login]] = []
    ours: list[list[Login]] = []
    spreads: list[dict[str, int]] = []
    for _ in range(extent.rounds):
        for log_in, rounds in ((front.log_in_plain, plain), (front.log_in_least, least)):
            rounds.append(front.at_once(log_in, extent.people))
            front.leave()
        front.rested()
        ours.append(front.at_once(front.log_in, extent.people))
        spreads.append(front.sessions(extent.people))
        front.leave()
    kinds = (("plain", plain, ()), ("an empty program", least, ()), ("ours", ours, spreads))
    rows = [crowd_row(f"{name}, {_AT_ONCE}", rounds, spread) for name, rounds, spread in kinds]
    medians = {}
    for count in AT_A_TIME:
        pairs = front.pairs(extent.pairs, count)
        rows += [
            row(f"plain, {_few(count)}", [theirs for theirs, _ in pairs]),
            row(f"ours, {_few(count)}", [mine for _, mine in pairs]),
        ]
        medians[count] = median((mine.seconds - theirs.seconds) * 1000 for theirs, mine in pairs)
    return Measured(tuple(rows), max(map(from_even, spreads)), medians)


def row(what: str, found: Sequence[Login]) -> Logins:
    """One line of the table."""
    seconds = [each.seconds * 1000 for each in found]
    asking = p95([each.asking * 1000 for each in found])
    return Logins(what, len(found), median(seconds), p95(seconds), max(seconds), asking)


def crowd_row(what: str, rounds: Sequence[Sequence[Login]], spreads: Sequence[dict[str, int]] = ()) -> Logins:
    """The line of several rounds."""
    by_node = "; ".join(" ".join(str(spread[node]) for node in sorted(spread)) for spread in spreads)
    by_round = " ".join(f"{p95([each.seconds * 1000 for each in found]):.0f}" for found in rounds)
    everyone = row(what, [each for found in rounds for each in found])
    return replace(everyone, by_node=by_node, p95_by_round=by_round)


def p95(values: Sequence[float]) -> float:
    """The 95th percentile of at least two values, between those that were seen."""
    return quantiles(values, n=20, method="inclusive")[-1]


def from_even(spread: dict[str, int]) -> float:
    """How far the sessions of a node are from the mean, at most."""
    mean = sum(spread.values()) / len(spread)
    return max(abs(count - mean) for count in spread.values())


@dataclass
class Front:
    """Four login nodes, four plain sshds, and who is on them."""

    rig: LoginRig
    inside: Sessions = field(default_factory=list)

    def log_in(self, number: int, inside: Sessions) -> Login:
        """As hp-login does it: ask where, go there, stay."""
        begin = time.monotonic()
        node = self._place(_person(number))
        asking = time.monotonic() - begin
        inside.append(self._enter(f"sshd-{node}", number))
        return Login(time.monotonic() - begin, asking)

    def log_in_plain(self, number: int, inside: Sessions) -> Login:
        """To one plain sshd after the other."""
        return self._in_turn(PLAIN, number, inside)

    def log_in_least(self, number: int, inside: Sessions) -> Login:
        """The same to sshds whose PAM stack runs a program that does nothing."""
        return self._in_turn(LEAST, number, inside)

    def _in_turn(self, nodes: Sequence[str], number: int, inside: Sessions) -> Login:
        begin = time.monotonic()
        inside.append(self._enter(f"sshd-{nodes[number % len(nodes)]}", number))
        return Login(time.monotonic() - begin)

    def at_once(self, log_in: Callable[[int, Sessions], Login], people: int) -> list[Login]:
        """Everybody logs in at the same instant, and stays."""
        ready = threading.Barrier(people)

        def one(number: int) -> Login:
            ready.wait(_LIMIT)
            return log_in(number, self.inside)

        with ThreadPoolExecutor(people) as pool:
            return list(pool.map(one, range(people)))

    def pairs(self, count: int, at_a_time: int) -> list[tuple[Login, Login]]:
        """Plain logins and ours in turn, so that what else the machine does meets both alike."""

        def one(number: int) -> tuple[Login, Login]:
            inside: Sessions = []
            ways = [self.log_in_plain, self.log_in]
            found = [way(number, inside) for way in (ways if number % 2 else reversed(ways))]
            _end(inside)
            plain, ours = found if number % 2 else reversed(found)
            return plain, ours

        with ThreadPoolExecutor(at_a_time) as pool:
            return list(pool.map(one, range(count)))

    def sessions(self, people: int) -> dict[str, int]:
        """What the service counts on each node, once it knows of all."""

        def counted() -> dict[str, int] | None:
            nodes = self.rig.service.ask("GET", "/v1/login/nodes")["nodes"]
            found = {node["name"]: int(node["sessions"]) for node in nodes}
            return found if sum(found.values()) == people else None

        seen: dict[str, int] = until(counted, _LIMIT)
        return seen

    def rested(self) -> None:
        """Wait until no node tells that its processors are busy: plain sshds kept them so until now.

        Raises:
            SandboxError: something else keeps them so.
        """

        def told() -> bool | None:
            nodes = self.rig.service.ask("GET", "/v1/login/nodes")["nodes"]
            return all(node["cpu"] <= RESTED for node in nodes) or None

        try:
            until(told, _LIMIT)
        except AssertionError:
            raise SandboxError(
                f"this machine's processors are still more than {RESTED:.0%} busy after {_LIMIT:.0f} s",
                "end what else runs on it, and measure again",
            ) from None

    def leave(self) -> None:
        """Everybody leaves; the nodes and the service know it when this returns."""
        _end(self.inside)
        find = ("pgrep", "-f", "^sshd: many")
        until(lambda: not self.rig.cluster.inside(*find, check=False).stdout or None, _LIMIT)
        self.sessions(0)

    def _place(self, user: str) -> str:
        service = self.rig.service
        headers = {"Authorization": f"Bearer {service.node_token}", "Content-Type": "application/json"}
        address = f"http://127.0.0.1:{service.port}/v1/login/sessions"
        asked = urllib.request.Request(address, json.dumps({"user": user}).encode(), headers)
        with urllib.request.urlopen(asked, timeout=_LIMIT) as answer:  # noqa: S310
            return str(json.load(answer)["node"])

    def _enter(self, service: str, number: int) -> subprocess.Popen[bytes]:
        argv = self.rig.command(service, _person(number), _STAY, options=("LogLevel=ERROR",))
        pipe = subprocess.PIPE
        session = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
        assert session.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(session.stdout, selectors.EVENT_READ)
            said = os.read(session.stdout.fileno(), 100) if waiting.select(_LIMIT) else b"nothing"
        if said != b"in\n":
            session.kill()
            told = session.communicate(timeout=_LIMIT)[1].decode(errors="replace")
            raise SandboxError(f"{_person(number)} does not get in by {service}: {said!r} {told}")
        return session


def _end(sessions: Sessions) -> None:
    for session in sessions:
        session.kill()
    for session in sessions:
        session.communicate(timeout=_LIMIT)
    sessions.clear()


class _Rig(LoginRig):  # type: ignore[misc]
    """Agents that tell as often as those of a real site."""

    every = 10.0


@contextmanager
def four_nodes(people: int, balance_on: str = BALANCED_ON) -> Iterator[Front]:
    """Four login nodes, four plain sshds, the service, and accounts for so many people.

    Args:
        balance_on: as the site states it; without `cpu` it does not matter who else works on this machine.

    Raises:
        SandboxError: there is no checkout, or a daemon does not start.
    """
    site = example_site()
    if site is None:
        raise SandboxError("the reference site is not here", "run this from a checkout")
    text = site.read_text().replace(f"balance_on: {BALANCED_ON}\n", f"balance_on: {balance_on}\n")
    assert f"balance_on: {balance_on}\n" in text
    with tempfile.TemporaryDirectory(prefix="hpctools-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the sandbox's daemons run under accounts of their own
        sandbox, service = Sandbox(folder / "sandbox"), Service(folder, text)
        rig = None
        try:
            up(sandbox, site, 2, lambda name, seconds: None)
            service.start()
            rig = _Rig(Cluster(sandbox), service)
            with service.patient():
                yield _served(rig, people)
        finally:
            if rig is not None:
                rig.end()
            if service.process:
                service.stop()
            down(sandbox)


def _served(rig: LoginRig, people: int) -> Front:
    _add(rig, people)
    for node in (*PLAIN, *LEAST):
        rig.serve(f"sshd-{node}", node)
    for node in LEAST:
        rig.cluster.inside("sh", "-c", f"echo '{_NOTHING}' >>/etc/pam.d/sshd-{node}")
    for node in NODES:
        rig.serve_login(node)
    return Front(rig)


def _add(rig: LoginRig, people: int) -> None:
    """Accounts in the sandbox; nobody has a password."""
    names = [(_person(number), _FIRST_UID + number) for number in range(people)]
    texts = {
        "passwd": "".join(f"{name}:x:{uid}:100::/tmp:/bin/sh\n" for name, uid in names),
        "shadow": "".join(f"{name}:*:19000:0:99999:7:::\n" for name, _ in names),
    }
    for file, text in texts.items():
        (rig.tree / "tmp" / file).write_text(text)
        rig.cluster.inside("sh", "-c", f"cat /tmp/{file} >>/etc/{file} && rm /tmp/{file}")


def _person(number: int) -> str:
    return f"many{number:03}"

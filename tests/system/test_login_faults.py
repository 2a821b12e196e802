"""What goes wrong on the way to login nodes: people who never speak or vanish, hanging sshds, losses.

Packets are lost by a line of our own: the kernel's own way of losing them (tc netem) is not everywhere.
"""

from __future__ import annotations

import random
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from hpctools.sandbox import ports
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.rise import up
from tests.system.harness import Cluster, until
from tests.system.login_rig import LIMIT, SILENT_SECONDS, EntranceRig, Service
from tests.system.pam_rig import ADMIN
from tests.system.test_login import STAY, came_in, come, gets_in, silent_at

pytestmark = pytest.mark.timeout(600)
NODES = ("front-1", "front-2")
GRACE = 10
APART = 7 * 60


class Line:
    """A port that leads to another one, whole, with losses, or dark: taken, and nothing passes.

    With losses each piece may be late, as one that is sent again, and each connection may break at any piece.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.state: Literal["whole", "lossy", "dark"] = "whole"
        self.broken = 0
        self._dice = random.Random(7)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        with near, suppress(OSError), socket.create_connection(("127.0.0.1", self.target), timeout=60) as far:
            far.settimeout(None)
            back = threading.Thread(target=self._carry, args=(far, near), daemon=True)
            back.start()
            self._carry(near, far)
            back.join()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                while self.state == "dark":
                    time.sleep(0.05)
                if self.state == "lossy":
                    self._lose(source, sink)
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _lose(self, *ends: socket.socket) -> None:
        fate = self._dice.random()
        if fate < 0.1:
            self.broken += 1
            raise ConnectionResetError
        if fate < 0.3:
            time.sleep(0.2)

    def end(self) -> None:
        self.state = "whole"
        self._listener.close()


class FaultRig(EntranceRig):
    """sshds that lose patience sooner, and agents that ask the service over a line."""

    settings: ClassVar[Mapping[str, str]] = {
        **EntranceRig.settings,
        "LoginGraceTime": str(GRACE),
        "MaxStartups": "60:100:60",
        "ClientAliveInterval": "2",
    }

    def __init__(self, cluster: Cluster, service: Service, line: Line) -> None:
        super().__init__(cluster, service, NODES)
        self.line, self.api_port = line, line.port

    def weights(self) -> dict[str, str]:
        """The state of each node, as HAProxy has it."""
        return {node: state.split()[0] for node, state in self.states().items()}

    def states(self) -> dict[str, str]:
        """The same, with who says so: `DOWN (agent)` when it is the node's agent."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.folder / "admin.sock"))
            connection.sendall(b"show stat\n")
            rows = [line.split(",") for line in connection.makefile().read().splitlines()]
        return {row[1]: row[17] for row in rows if len(row) > 17 and row[1] in NODES}

    def until_state(self, node: str, state: str) -> None:
        """Wait until HAProxy has a node so."""
        until(lambda: self.weights()[node] == state or None, 60)

    @contextmanager
    def another(self, node: str, clock_off_by: int = 0) -> Iterator[Line]:
        """One more login node, with a line of its own, that lets people in while the service is away."""
        line, shared = Line(self.service.port), self.api_port
        self.checks |= ports.choose((node,))
        self.api_port = line.port
        try:
            self.serve_login(node, when_unreachable="open", clock_off_by=clock_off_by)
            yield line
            line.state = "whole"
            self.leave()
            until(lambda: self.service.ask("GET", "/v1/login/sessions")["sessions"] == [] or None, 60)
        finally:
            self.api_port = shared
            self.kill_login(node)
            line.end()

    def stand_before(self, folder: Path) -> None:
        self.folder = folder
        super().stand_before(folder)

    def until_service_says(self, node: str, state: str) -> None:
        """Wait until the service has a node so."""

        def said() -> bool | None:
            nodes = self.service.ask("GET", "/v1/login/nodes")["nodes"]
            return (node, state) in {(each["name"], each["state"]) for each in nodes} or None

        until(said, 60)

    @contextmanager
    def told(self, node: str, **settings: str) -> Iterator[None]:
        """A node's sshd reads these settings in place of its own, and at the end its own again."""
        path = self.tree / "etc/ssh/sshd_login"
        own = path.read_text()
        rest = [line for line in own.splitlines() if line.split()[0] not in settings]
        stated = [f"{name} {value}" for name, value in settings.items()]
        try:
            path.write_text("\n".join([*rest, *stated, ""]))
            self.signal(node, "HUP")
            yield
        finally:
            path.write_text(own)
            self.signal(node, "HUP")

    def title(self, node: str) -> str:
        """What the title of a node's sshd says of its places."""
        port = self.ports[f"sshd-{node}"]
        found = self.cluster.inside(
            "pgrep", "-a", "-f", f"^sshd: /usr/sbin/sshd -D .*-p {port} ", check=False
        )
        return found.stdout.partition("[listener] ")[2].strip()

    def signal(self, node: str, name: str) -> None:
        """Send a signal to a node's listening sshd."""
        port = self.ports[f"sshd-{node}"]
        self.cluster.inside("pkill", f"-{name}", "-f", f"^(sshd: )?/usr/sbin/sshd -D .*-p {port}( |$)")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str) -> Iterator[FaultRig]:
    """Two login nodes that let nobody in uncounted, HAProxy before them, the service behind a line."""
    folder = tmp_path_factory.mktemp("faults")
    sandbox, service = Sandbox(folder / "state"), Service(folder, site_file.read_text())
    with ExitStack() as stack:
        stack.callback(down, sandbox)
        up(sandbox, site_file, 2, lambda name, seconds: None, slurm=slurm_release)
        stack.callback(lambda: service.stop() if service.process else None)
        service.start()
        line = Line(service.port)
        stack.callback(line.end)
        made = FaultRig(Cluster(sandbox), service, line)
        stack.callback(made.end)
        stack.callback(made.leave)
        for node in NODES:
            made.serve_login(node, when_unreachable="refuse")
        made.stand_before(folder)
        for node in NODES:
            made.until_state(node, "UP")
        yield made


@pytest.fixture(autouse=True)
def _leave(rig: FaultRig) -> Iterator[None]:
    yield
    rig.line.state = "whole"
    rig.leave()
    until(lambda: rig.service.ask("GET", "/v1/login/sessions")["sessions"] == [] or None, 60)


def test_people_who_never_speak_keep_nobody_from_getting_through_haproxy_and_are_let_go(
    rig: FaultRig,
) -> None:
    silent = [silent_at(rig.ports["haproxy"]) for _ in range(60)]
    try:
        assert [rig.ssh("haproxy", "nlp2", "id -un").stdout for _ in range(4)] == ["nlp2\n"] * 4
        for each in silent:
            assert each.recv(100) == b"", "sshd hangs up after its grace, and HAProxy with it"
    finally:
        for each in silent:
            each.close()


def test_an_sshd_that_hangs_is_left_out(rig: FaultRig) -> None:
    """Its connections are taken by the kernel, and nobody says anything."""
    rig.signal("front-2", "STOP")
    try:
        rig.until_state("front-2", "DOWN")
        assert rig.reached(4) == {"front-1"}
        rig.until_service_says("front-2", "closed")
        assert sent(rig) == {"front-1"}
    finally:
        rig.signal("front-2", "CONT")
    rig.until_state("front-2", "UP")
    rig.until_service_says("front-2", "up")


def sent(rig: FaultRig) -> set[str]:
    """Where the service sends people."""
    users = ("nlp2", "cv1", "cv2")
    return {rig.service.ask("POST", "/v1/login/sessions", {"user": user})["node"] for user in users}


def test_an_sshd_that_is_full_is_left_out_until_it_is_not(rig: FaultRig) -> None:
    """By its agent, which reads that off its title: HAProxy's own check may find a place at its moment."""
    with rig.told("front-2", MaxStartups="8:100:8", LoginGraceTime="600"):
        until(lambda: rig.title("front-2") == "0 of 8-8 startups" or None, 60)
        silent: list[socket.socket] = []
        try:
            fill(rig, "front-2", 8, silent)
            until(lambda: rig.states()["front-2"] == "DOWN (agent)" or None, 60)
            assert rig.reached(4) == {"front-1"}
            rig.until_service_says("front-2", "closed")
            assert sent(rig) == {"front-1"}
        finally:
            for each in silent:
                each.close()
        rig.until_state("front-2", "UP")
        rig.until_service_says("front-2", "up")


def fill(rig: FaultRig, node: str, places: int, silent: list[socket.socket]) -> None:
    """Take all places of a node's sshd.

    The agent's and HAProxy's questions want one, too: what they have is free again a moment later.

    Args:
        silent: gets the connections that have a place; the caller closes them.
    """

    def taken() -> bool | None:
        with suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", rig.ports[f"sshd-{node}"]), timeout=60)
            if connection.recv(100).startswith(b"SSH-"):
                silent.append(connection)
            else:
                connection.close()  # refused
        return len(silent) == places or None

    until(taken, 60)
    until(lambda: rig.title(node) == f"{places} of {places}-{places} startups" or None, 60)


@pytest.mark.slow
def test_who_vanishes_without_a_word_frees_their_session(rig: FaultRig) -> None:
    """A lid that closes: the connection stays half open, and nothing comes over it any more."""
    line = Line(rig.ports["sshd-front-1"])
    rig.ports["line"] = line.port
    try:
        for _ in range(LIMIT):
            rig.stay("line", "nlp1")
        assert rig.ssh("sshd-front-2", "nlp1", "id").returncode == 255
        line.state = "dark"
        until(lambda: gets_in(rig, "front-2", "nlp1"), 120)
    finally:
        line.end()


def test_a_network_that_is_cut_keeps_out_all_but_administrators_and_heals(rig: FaultRig) -> None:
    """Questions are taken, and never answered: PAM does not wait for longer than it says."""
    rig.line.state = "dark"
    assert "lets nobody in without it" in rig.ssh("sshd-front-1", "nlp1", "id").stderr
    assert rig.ssh("sshd-front-1", ADMIN, "id -un").stdout == f"{ADMIN}\n"
    rig.line.state = "whole"
    until(lambda: gets_in(rig, "front-1", "nlp1"), 120)


@pytest.mark.slow
def test_a_single_node_that_is_cut_off_adds_its_own_limit_and_no_more(rig: FaultRig) -> None:
    """All others count on, and when it is back its sessions count as well; nobody is ended for that."""
    with rig.service.patient(), rig.another("alone") as line:
        for node in NODES:
            rig.stay(f"sshd-{node}", "nlp1")
        rig.until_known("nlp1", LIMIT)
        assert rig.ssh("sshd-alone", "nlp1", "id").returncode == 255
        line.state = "dark"
        for _ in range(LIMIT):
            rig.stay("sshd-alone", "nlp1")
        assert rig.ssh("sshd-alone", "nlp1", "id").returncode == 255, "beyond the node's own limit"
        assert rig.ssh("sshd-front-1", "nlp1", "id").returncode == 255, "the others have not forgotten"
        assert len(rig.service.sessions("nlp1")) == LIMIT
        line.state = "whole"
        rig.until_known("nlp1", 2 * LIMIT)
        assert [rig.ssh(f"sshd-{node}", "nlp1", "id").returncode for node in (*NODES, "alone")] == [255] * 3
        assert len(rig.service.sessions("nlp1")) == 2 * LIMIT


@pytest.mark.parametrize("off_by", [-APART, APART])
@pytest.mark.slow
def test_a_node_whose_clock_is_minutes_off_counts_as_any_other(rig: FaultRig, off_by: int) -> None:
    """Its agent and its kernel believe what it says: nobody is older there, and no lease is stale."""
    node = f"apart{off_by}"
    with rig.another(node, clock_off_by=off_by):
        assert rig.clock_of(node) - time.time() == pytest.approx(off_by, abs=60)
        rig.stay(f"sshd-{node}", "nlp1")
        rig.stay("sshd-front-1", "nlp1")
        rig.until_known("nlp1", LIMIT)
        refused = [rig.ssh(f"sshd-{each}", "nlp1", "id") for each in (node, "front-2")]
        assert [each.returncode for each in refused] == [255, 255]
        young = re.compile(rf"{node}, for \d+ s, from")
        assert all(young.search(each.stderr) for each in refused), refused
        begun = time.monotonic()
        while time.monotonic() < begun + 2 * SILENT_SECONDS:
            assert node in rig.up()
            found = rig.service.ask("GET", "/v1/login/sessions?user=nlp1")["sessions"]
            since = [datetime.fromisoformat(each["since"]).timestamp() for each in found]
            assert len(since) == LIMIT
            assert min(since) > time.time() - 120
            assert max(since) <= time.time() + 1
        rig.leave()
        rig.until_known("nlp1", 0)


def test_a_network_that_loses_packets_between_nodes_and_service_loses_no_count(rig: FaultRig) -> None:
    """A dozen logins of one person; those whose question was lost are refused, and may try again."""
    with rig.service.patient():
        rig.line.state = "lossy"
        asked = [rig.begin(f"sshd-{NODES[n % 2]}", "cv2", STAY) for n in range(12)]
        inside: list[subprocess.Popen[str]] = [session for session in asked if came_in(session)]
        assert len(inside) <= LIMIT
        while len(inside) < LIMIT:
            inside.append(until(lambda: come(rig, "front-1", "cv2"), 120))
        refused = [rig.ssh(f"sshd-{node}", "cv2", "id").returncode for node in (*NODES, *NODES)]
        assert refused == [255] * 4
        rig.line.state = "whole"
        rig.until_known("cv2", LIMIT)
    assert rig.line.broken > 0, "nothing was lost: this shows nothing"

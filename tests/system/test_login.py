"""Sessions over several login nodes: real sshds, PAM, agents and the service."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread

import paramiko
import pytest

from hpctools.cli import session_manager_lambda
from hpctools.login.session_manager.started import Started
from tests.system.harness import until
from tests.system.login_rig import LIMIT, LoginRig, login_nodes
from tests.system.pam_rig import ADMIN

pytestmark = pytest.mark.timeout(300)
NODES = ("front-1", "front-2")
STRICT = ("strict-1", "strict-2")
"""Nodes that let nobody in whom the service has not counted, however slow it is."""
SELDOM = ("seldom-1", "seldom-2")
STAY = "echo in; exec sleep 600"
SLEEP = "sleep 6007"
AS_NLP2 = f"setpriv --reuid=nlp2 --regid=nlp2 --init-groups {SLEEP}"
WORKER = f"exec -a 'ssm-session-worker bo-0a1b' bash -c '{AS_NLP2}; exit'"
"""Session Manager's worker for a session, as root, and what it runs as the person."""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str) -> Iterator[LoginRig]:
    """Two login nodes and the service."""
    folder = tmp_path_factory.mktemp("login")
    nodes = {**dict.fromkeys(NODES, "open"), **dict.fromkeys(STRICT, "refuse")}
    with login_nodes(folder, site_file, slurm_release, nodes) as made:
        yield made


@pytest.fixture(autouse=True)
def _leave(rig: LoginRig) -> Iterator[None]:
    """Each test ends its sessions, and waits until the service knows of none."""
    yield
    rig.leave()
    until(lambda: rig.service.ask("GET", "/v1/login/sessions")["sessions"] == [] or None, 30)


def test_the_third_of_two_sessions_is_refused_on_every_node(rig: LoginRig) -> None:
    first = rig.stay("sshd-front-1", "nlp1")
    rig.stay("sshd-front-2", "nlp1")
    for node in NODES:
        refused = rig.ssh(f"sshd-{node}", "nlp1", "id")
        assert refused.returncode == 255
        assert "nlp1: you have 2 sessions on the login nodes, and the limit is 2:" in refused.stderr
        assert "front-1, for " in refused.stderr
        assert "front-2, for " in refused.stderr
        assert "from 127.0.0.1" in refused.stderr
        assert "To end one: log out there, or hp-login --end " in refused.stderr
    assert rig.ssh("sshd-front-1", "nlp2", "id -un").stdout == "nlp2\n"
    assert rig.ssh("sshd-front-1", ADMIN, "id -un").stdout == f"{ADMIN}\n"
    first.kill()
    until(lambda: rig.ssh("sshd-front-2", "nlp1", "id -un").stdout == "nlp1\n" or None, 20)


def test_who_logs_out_on_one_node_gets_in_on_another_at_once(rig: LoginRig) -> None:
    """Their agents look twice a minute: it is the kernel that tells of the end."""
    with rig.service.patient(), rig.reporting_every(30.0):
        for node in SELDOM:
            rig.serve_login(node, "refuse")
        leaving, _ = (rig.stay("sshd-seldom-1", "nlp1") for _ in range(LIMIT))
        assert rig.ssh("sshd-seldom-2", "nlp1", "id").returncode == 255
        leaving.kill()
        until(lambda: len(rig.service.sessions("nlp1")) == LIMIT - 1 or None, 10)
        assert rig.ssh("sshd-seldom-2", "nlp1", "id -un").stdout == "nlp1\n"
        rig.leave()
        until(lambda: rig.service.sessions("nlp1") == [] or None, 10)
        for node in SELDOM:
            rig.kill_login(node)


def test_a_session_is_ended_from_elsewhere(rig: LoginRig) -> None:
    session = rig.stay("sshd-front-1", "nlp1")
    rig.until_known("nlp1", 1)
    ((node, number),) = rig.service.sessions("nlp1")
    assert node == "front-1"
    assert rig.service.ask("DELETE", f"/v1/login/sessions/{number}")["ending"]
    assert session.wait(20) == 255


def test_a_dozen_at_once_on_two_nodes_are_counted_one_by_one(rig: LoginRig) -> None:
    """Who is not answered in time is refused, too, and keeps no place: it is exact on a slow machine, too."""
    with rig.service.patient():
        asked = [rig.begin(f"sshd-{STRICT[n % 2]}", "cv2", STAY) for n in range(12)]
        inside = [session for session in asked if came_in(session)]
        assert len(inside) <= LIMIT
        while len(inside) < LIMIT:
            inside.append(until(lambda: come(rig, "strict-1", "cv2"), 60))
        rig.until_known("cv2", LIMIT)
        assert [rig.ssh(f"sshd-{node}", "cv2", "id").returncode for node in STRICT] == [255, 255]


class Hammer:
    """One person who logs in as fast as they can, in several loops at once, and stays for a moment each time.

    Attributes:
        most: how many of their sessions there were at once, as the person sees it.
        begun: how many began.
        refused: how many logins were refused.
    """

    def __init__(self, rig: LoginRig, user: str) -> None:
        self.rig, self.user = rig, user
        self.inside = self.most = self.begun = self.refused = 0
        self._lock, self._enough = Lock(), Event()
        self._loops = [Thread(target=self._strike, args=(STRICT[n % 2],)) for n in range(4)]

    def __enter__(self) -> Hammer:
        for loop in self._loops:
            loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        for loop in self._loops:
            loop.join(60)

    def _strike(self, node: str) -> None:
        while not self._enough.is_set():
            session = self.rig.begin(f"sshd-{node}", self.user, STAY)
            if came_in(session):
                self._count(1)
                self._enough.wait(0.5)
                self._count(-1)
            else:
                self.refused += 1
            session.kill()
            session.communicate()

    def _count(self, more: int) -> None:
        """Before they leave: nobody counts less than there are."""
        with self._lock:
            self.inside += more
            self.begun += more > 0
            self.most = max(self.most, self.inside)


def test_a_user_who_hammers_gets_their_limit_and_keeps_nobody_else_out(rig: LoginRig) -> None:
    """Never one session more, however many they try; and others get in meanwhile."""
    with rig.service.patient(), Hammer(rig, "cv2") as hammer:
        until(lambda: hammer.refused or None, 120)
        for node in STRICT * 2:
            until(partial(gets_in, rig, node, "nlp2"), 120)
        until(lambda: (hammer.refused >= 12 and hammer.begun >= 12 and hammer.most >= LIMIT) or None, 120)
    assert hammer.most == LIMIT


def gets_in(rig: LoginRig, node: str, user: str) -> bool | None:
    """Whether somebody gets in; None when not, or not yet on a machine with other work."""
    with suppress(subprocess.TimeoutExpired):
        return rig.ssh(f"sshd-{node}", user, "id -un").stdout == f"{user}\n" or None
    return None


def came_in(session: subprocess.Popen[str]) -> bool:
    """Wait until a login is decided; whether they are in."""
    assert session.stdout is not None
    return session.stdout.readline() == "in\n"


def come(rig: LoginRig, node: str, user: str) -> subprocess.Popen[str] | None:
    """Log in and stay; None when refused."""
    session = rig.begin(f"sshd-{node}", user, STAY)
    return session if came_in(session) else None


def test_connections_that_never_speak_keep_nobody_out_and_are_not_counted(rig: LoginRig) -> None:
    """Half-open ones, as sshd is told to treat them (`hpctools.login.sshd`): its own words take ten."""
    silent = [silent_at(rig.ports["sshd-front-1"]) for _ in range(150)]
    try:
        assert [rig.ssh("sshd-front-1", "nlp2", "id -un").stdout for _ in range(3)] == ["nlp2\n"] * 3
        rig.stay("sshd-front-1", "nlp1")
        rig.until_known("nlp1", 1)
        until(lambda: users_on_front_1(rig) == ["nlp1"] or None)  # those of nlp2 have ended
    finally:
        for each in silent:
            each.close()


def users_on_front_1(rig: LoginRig) -> list[str]:
    found = rig.service.ask("GET", "/v1/login/sessions?node=front-1")["sessions"]
    return [each["user"] for each in found]


def silent_at(port: int) -> socket.socket:
    """A connection that has sshd's first line, and says nothing itself."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    assert connection.recv(100).startswith(b"SSH-2.0-")
    return connection


HOSTILE = (
    "$(touch /tmp/made-to-inject)", "nlp1;touch /tmp/made-to-inject", "`touch /tmp/made-to-inject`",
    "../../../tmp/made-to-inject", "nlp1\ntouch /tmp/made-to-inject", "-oProxyCommand=touch /tmp/x",
    "\x1b]0;nlp1\x07", "nlp1' OR '1'='1", "%n%s%n", "n" * 5000, "",
)  # fmt: skip


def test_login_names_made_to_inject_do_nothing_and_are_nobodys_sessions(rig: LoginRig) -> None:
    """As no ssh would send them: through sshd, PAM and the agent, which see them first."""
    key = paramiko.Ed25519Key.from_private_key_file(str(rig.cluster.sandbox.layout.key))
    for name in HOSTILE:
        with paramiko.Transport(("127.0.0.1", rig.ports["sshd-strict-1"])) as line:
            line.start_client(timeout=60)
            with pytest.raises((paramiko.SSHException, EOFError)):
                line.auth_publickey(name, key)
    until(partial(gets_in, rig, "strict-1", "nlp1"), 60)
    assert not (rig.tree / "tmp/made-to-inject").exists()
    users = {each["user"] for each in rig.service.ask("GET", "/v1/login/sessions")["sessions"]}
    assert users <= {"nlp1"}
    assert "strict-1" in rig.up()


def test_sshds_that_were_killed_lock_nobody_out(rig: LoginRig) -> None:
    """Nothing of PAM runs at their end."""
    sessions = [rig.stay("sshd-front-1", "cv1") for _ in range(LIMIT)]
    assert rig.ssh("sshd-front-2", "cv1", "id").returncode == 255
    kill = "for p in $(pgrep -f '^sshd: cv1'); do kill -9 $p; done"
    rig.cluster.inside("sh", "-c", kill)
    for session in sessions:
        session.wait(20)
    until(lambda: rig.ssh("sshd-front-2", "cv1", "id -un").stdout == "cv1\n" or None, 20)


def test_while_the_service_is_away_each_node_has_its_own_limit_and_afterwards_all_counts(
    rig: LoginRig,
) -> None:
    rig.service.stop()
    try:
        for node in NODES:
            for _ in range(LIMIT):
                rig.stay(f"sshd-{node}", "nlp1")
            refused = rig.ssh(f"sshd-{node}", "nlp1", "id")
            assert f"nlp1: you have 2 sessions on {node}, and the limit is 2:" in refused.stderr
    finally:
        rig.service.start()
    rig.until_known("nlp1", 2 * LIMIT)
    rig.leave()
    rig.until_known("nlp1", 0)
    assert rig.ssh("sshd-front-1", "nlp1", "id -un").stdout == "nlp1\n"


def is_refused_for_the_limit(rig: LoginRig, user: str) -> bool:
    """By the service; an open node lets people in where it does not answer soon, as on a busy machine."""
    done = rig.ssh("sshd-strict-1", user, "id")
    assert done.returncode == 255, "before all nodes have reported, too"
    return "the limit is 2" in done.stderr


@pytest.mark.slow
def test_a_minute_without_the_service_keeps_nobody_out_and_loses_no_session(rig: LoginRig) -> None:
    """All leases are long out of date when it comes back, and it still knows who was there all the time."""
    before = rig.stay("sshd-front-1", "nlp1")
    rig.until_known("nlp1", 1)
    for node in NODES:
        rig.stay(f"sshd-{node}", "cv2")
    rig.until_known("cv2", LIMIT)
    rig.service.stop()
    came, begun = 0, time.monotonic()
    try:
        while time.monotonic() < begun + 60:
            for node in NODES:
                assert rig.ssh(f"sshd-{node}", "nlp2", "id -un").stdout == "nlp2\n"
                came += 1
        assert before.poll() is None
        rig.stay("sshd-front-2", "nlp1")
    finally:
        rig.service.start()
    until(partial(is_refused_for_the_limit, rig, "cv2"), 20)
    rig.until_known("nlp1", LIMIT)
    assert rig.service.sessions("nlp2") == []
    assert [rig.ssh(f"sshd-{node}", "nlp1", "id").returncode for node in (*NODES, *STRICT)] == [255] * 4
    assert came > 20, "each waits for the node's agent for a moment at most"


def test_the_file_that_lifts_limits_is_told_in_the_audit_trail(rig: LoginRig) -> None:
    file = rig.tree / "tmp/front-1/unlimited"
    file.touch()
    try:
        rig.stay("sshd-front-2", "nlp1")
        rig.stay("sshd-front-2", "nlp1")
        rig.stay("sshd-front-1", "nlp1")
        rig.until_known("nlp1", 3)
        assert rig.ssh("sshd-front-2", "nlp1", "id").returncode == 255
        query = "/v1/audit?action=login.unlimited"
        (entry,) = until(lambda: rig.service.ask("GET", query)["entries"] or None, 20)
        assert (entry["subject"], entry["after"]) == ("front-1", True)
    finally:
        file.unlink()
    until(lambda: not is_unlimited(rig, "front-1") or None, 20)  # its agent looks now and then


def is_unlimited(rig: LoginRig, node: str) -> bool:
    """Whether the service has heard that a node's limits are lifted."""
    return any(
        each["unlimited"]
        for each in rig.service.ask("GET", "/v1/login/nodes")["nodes"]
        if each["name"] == node
    )


def test_a_department_fills_up_over_ssh_and_session_manager_together(
    rig: LoginRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Lambda function asks the real service; of AWS only the end of a session is played."""
    aws = Aws()
    monkeypatch.setattr(session_manager_lambda, "connect", lambda region, patience: aws)
    environment = {
        "HPCTOOLS_API": f"http://127.0.0.1:{rig.service.port}",
        "HPCTOOLS_API_TOKEN": rig.service.node_token,
        "HPCTOOLS_RUN_AS": '{"user/bo": "nlp2"}',
        "HPCTOOLS_LOGIN_NODES": '{"i-0aaa111": "front-1"}',
        "HPCTOOLS_NOTICE_SECONDS": "0",
    }
    enforcement = session_manager_lambda.make_enforcement(environment)
    owner, target = "arn:aws:iam::123456789012:user/bo", "i-0aaa111"
    with rig.service.department_limit(2):
        rig.stay("sshd-front-2", "nlp1")
        with ssm_worker(rig, "front-1"):
            assert enforcement.admit(Started("bo-0a1b", target, owner)) == "granted"
            rig.until_known("nlp2", 1)  # a report of its node may have been on its way, without it
            refused = rig.ssh("sshd-front-1", "nlp1", "id")
            assert refused.returncode == 255
            assert "nlp1: nlp has 2 sessions on the login nodes, and its limit is 2." in refused.stderr
            assert enforcement.admit(Started("bo-9z8y", target, owner)) == "ended"
            assert aws.ended == ["bo-9z8y"]
            assert rig.ssh("sshd-front-1", "cv2", "id -un").stdout == "cv2\n"
            rig.until_known("nlp2", 1)
        until(lambda: rig.ssh("sshd-front-1", "nlp1", "id -un").stdout == "nlp1\n" or None, 20)


@contextmanager
def ssm_worker(rig: LoginRig, node: str) -> Iterator[None]:
    """Session Manager's worker for a session of nlp2's on a node, with what it runs for them."""
    rig.on_login(node, ["bash", "-c", WORKER])
    try:
        yield
    finally:
        for pattern in ("^ssm-session-worker bo-0a1b", f"^{SLEEP}$"):
            rig.cluster.inside("pkill", "-9", "-f", pattern, check=False)


class Aws:
    """AWS's ssm, which ends sessions."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def service(self, name: str) -> Aws:
        assert name == "ssm"
        return self

    def ask(self, operation: str, **arguments: str) -> dict[str, str]:
        assert (operation, set(arguments)) == ("terminate_session", {"SessionId"})
        self.ended.append(arguments["SessionId"])
        return arguments


def test_a_token_that_is_replaced_needs_no_restart(rig: LoginRig) -> None:
    """The old one is revoked; nodes that let nobody in uncounted do so again once their file has the next."""
    rig.service.replace_node_token()
    refused = rig.ssh("sshd-strict-1", "nlp1", "id")
    assert "refuses this node's questions" in refused.stderr
    for node in (*NODES, *STRICT):
        rig.give_token(node)
    until(lambda: rig.ssh("sshd-strict-1", "nlp1", "id -un").stdout == "nlp1\n" or None, 30)
    until(lambda: set(rig.up()) >= {*NODES, *STRICT} or None, 30)


def test_a_node_that_is_killed_with_sessions_on_it_locks_nobody_out(rig: LoginRig) -> None:
    """Its agent, its sshd and who was there go at once; nobody there can tell the service."""
    for _ in range(LIMIT):
        rig.stay("sshd-strict-2", "nlp1")
    assert rig.ssh("sshd-front-1", "nlp1", "id").returncode == 255
    rig.kill_login("strict-2")
    until(lambda: rig.ssh("sshd-front-1", "nlp1", "id -un").stdout == "nlp1\n" or None, 30)
    until(lambda: "strict-2" not in rig.up() or None, 20)


def test_without_its_agent_a_node_lets_in_or_refuses_as_the_site_says(rig: LoginRig) -> None:
    assert rig.ssh("sshd-strict-1", "nlp1", "id -un").stdout == "nlp1\n"
    for node, expected in (("strict-1", 255), ("front-2", 0)):
        end_agent(rig, node)
        done = rig.ssh(f"sshd-{node}", "nlp1", "id -un")
        assert done.returncode == expected, done
        assert rig.ssh(f"sshd-{node}", ADMIN, "id -un").stdout == f"{ADMIN}\n"
    refused = rig.ssh("sshd-strict-1", "nlp1", "id")
    assert "The agent of this node does not answer: try another login node." in refused.stderr


def end_agent(rig: LoginRig, node: str) -> None:
    """Kill a node's agent; its socket stays."""
    settings = f"raise SystemExit.main..* --config /tmp/{node}/agent.yaml"
    rig.cluster.inside("pkill", "-9", "-f", settings)

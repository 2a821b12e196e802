"""Who gets in on which node: real sshds with PAM services of their own, pam_slurm_adopt, jobs and cgroups."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpctools.sandbox import ports
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.process import send
from hpctools.sandbox.rise import up
from tests.system.harness import Cluster, until
from tests.system.pam_rig import ADMIN, GROUP_ADMIN, Rig, ended_after, job_of

pytestmark = pytest.mark.timeout(120)
ADMINISTRATORS = ("root", ADMIN, GROUP_ADMIN)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str) -> Iterator[Rig]:
    """Two compute nodes, each with its sshd and our stack."""
    sandbox = Sandbox(tmp_path_factory.mktemp("pam") / "state")
    made = None
    try:
        if up(sandbox, site_file, 2, lambda name, seconds: None, slurm=slurm_release).cgroup == "none":
            pytest.skip("this machine gives the sandbox no cgroups")
        made = Rig(Cluster(sandbox))
        for node in made.nodes:
            made.serve(f"sshd-{node}", node)
            made.installer("install", f"sshd-{node}", "--role", "compute", "--node", node)
        yield made
    finally:
        if made:
            made.end()
        down(sandbox)


@pytest.fixture(autouse=True)
def _leave(rig: Rig) -> Iterator[None]:
    """Each test ends its sessions, and waits until the login node has forgotten them."""
    yield
    rig.leave()


def test_nobody_without_a_job_but_administrators(rig: Rig) -> None:
    for service in rig.ports:
        refused = rig.ssh(service, "nlp1")
        assert refused.returncode == 255
        assert f"You have no running job on {service[5:]}." in refused.stderr
        for administrator in ADMINISTRATORS:
            admitted = rig.ssh(service, administrator, "id -un")
            assert (admitted.stdout, admitted.returncode) == (f"{administrator}\n", 0), admitted.stderr


def test_a_session_lives_in_the_job_and_as_long(rig: Rig) -> None:
    """The sleep of a session ends, and the connection with it, when the job is cancelled or over."""
    job = rig.submit("nlp1", "reserved-1")
    assert job_of(rig.ssh("sshd-reserved-1", "nlp1").stdout) == {job}
    assert rig.ssh("sshd-reserved-2", "nlp1").returncode == 255  # it has no job there
    assert rig.ssh("sshd-reserved-1", "nlp2").returncode == 255  # nor has somebody else
    session = rig.stay("sshd-reserved-1", "nlp1")
    begin = time.monotonic()
    rig.cancel(job)
    assert ended_after(session, begin) < 2
    assert session.returncode == 255
    assert rig.ssh("sshd-reserved-1", "nlp1").returncode == 255


def test_a_session_ends_when_the_job_completes(rig: Rig) -> None:
    wait = rig.cluster.give("nlp1", "wait", "")
    job = rig.submit("nlp1", "reserved-1", script=f"while [ -e {wait} ]; do sleep 0.05; done")
    session = rig.stay("sshd-reserved-1", "nlp1")
    begin = time.monotonic()
    (rig.cluster.home("nlp1") / "wait").unlink()
    assert ended_after(session, begin) < 2
    assert rig.cluster.ended(job, "nlp1").state == "COMPLETED"


@contextmanager
def through(port: int) -> Iterator[socket.socket]:
    """A connection through a forwarded port to an sshd, which has said what it is."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as tunnel:
        assert tunnel.recv(4) == b"SSH-"
        yield tunnel


def is_closed(tunnel: socket.socket) -> bool:
    """Whether the other end is gone, once what it had sent is read."""
    try:
        while tunnel.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def test_connections_without_a_shell_end_with_the_job(rig: Rig, tmp_path: Path) -> None:
    """`ssh -N`, a tunnel with somebody in it, sftp, a copy that is under way, the master of others."""
    job = rig.submit("nlp1", "reserved-1")
    big, port = tmp_path / "big", ports.choose(["tunnel"])["tunnel"]
    big.write_bytes(bytes(2**24))
    service, user = "sshd-reserved-1", "nlp1"
    tunnel = ("-N", "-L", f"{port}:127.0.0.1:{rig.ports['sshd-reserved-2']}")
    master = ("ControlMaster=yes", f"ControlPath={tmp_path}/mux")
    connections = [
        rig.hold(service, user, "-N"),
        rig.hold(service, user, *tunnel, options=("ExitOnForwardFailure=yes",)),
        rig.hold(service, user, "-s", "sftp"),
        rig.hold(service, user, "-N", options=master),
    ]
    copying = rig.copy(service, user, big, "-l", "800")  # Kbit/s: it would take minutes
    until((rig.cluster.home(user) / "big").exists, 10)
    with through(port) as inside:
        begin = time.monotonic()
        rig.cancel(job)
        codes = [connection.wait(20) for connection in connections]
        assert time.monotonic() - begin < 2
        until(lambda: nobody_is_left(rig, user) or None, 10)
        assert is_closed(inside)
    assert codes == [255] * 4
    assert copying.wait(20)  # it looks up from its own pauses


def nobody_is_left(rig: Rig, user: str) -> bool:
    """Whether no process of somebody's runs on any host."""
    return rig.cluster.inside("pgrep", "-u", user, check=False).stdout == ""


def test_connections_without_a_shell_take_a_job(rig: Rig, tmp_path: Path) -> None:
    """Nothing is forwarded, listed or copied for somebody without one."""
    small, port = tmp_path / "small", ports.choose(["tunnel"])["tunnel"]
    small.write_text("small\n")
    service, user = "sshd-reserved-1", "nlp2"
    refused = [
        rig.begin(service, user, "-N"),
        rig.begin(service, user, "-N", "-L", f"{port}:127.0.0.1:{rig.ports['sshd-reserved-2']}"),
        rig.begin(service, user, "-s", "sftp"),
        rig.copy(service, user, small),
    ]
    for connection in refused:
        said = connection.communicate(timeout=20)[1]
        assert (connection.returncode, "You have no running job on reserved-1" in said) == (255, True), said
    assert ports.is_free(port)
    job = rig.submit(user, "reserved-1")
    copied = rig.copy(service, user, small)
    assert (copied.wait(20), (rig.cluster.home(user) / "small").read_text()) == (0, "small\n")
    rig.cancel(job)


def test_a_master_brings_nobody_in_after_the_job(rig: Rig, tmp_path: Path) -> None:
    """Account and adoption are the connection's, not the session's: each session over it is in the job, and
    ends with it; who asks for one after scancel is refused."""
    job = rig.submit("nlp1", "reserved-1")
    path = f"ControlPath={tmp_path}/mux"
    master = rig.hold("sshd-reserved-1", "nlp1", "-N", options=("ControlMaster=yes", path))
    seen = [rig.ssh("sshd-reserved-1", "nlp1", options=(path,)) for _ in range(2)]
    assert [job_of(done.stdout) for done in seen] == [{job}, {job}], seen
    assert master.poll() is None
    rig.cancel(job)
    end = time.monotonic() + 2
    while (late := rig.ssh("sshd-reserved-1", "nlp1", options=(path,))).returncode == 0:
        assert job_of(late.stdout) == {job}
        assert time.monotonic() < end
    assert master.wait(2)
    end = time.monotonic() + 10  # who comes while the job is ending is let in, and ends with it
    while (
        "You have no running job on reserved-1."
        not in (last := rig.ssh("sshd-reserved-1", "nlp1", options=(path,))).stderr
    ):
        assert (last.returncode, last.stdout) == (255, ""), last
        assert time.monotonic() < end, last
    assert (last.returncode, last.stdout) == (255, "")


def test_fifty_sessions_of_ten_people_at_once(rig: Rig) -> None:
    """Each lands in the job of its owner, on the node that it came to."""
    people = rig.people(10)
    with ThreadPoolExecutor(10) as pool:
        jobs = dict(
            zip(
                people,
                pool.map(lambda user: rig.submit(user, "reserved-1", running=False), people),
                strict=True,
            )
        )
    for job in jobs.values():
        rig.until_running(job)
    logins = [user for user in people for _ in range(5)]
    with ThreadPoolExecutor(50) as pool:
        seen = list(pool.map(lambda user: rig.ssh("sshd-reserved-1", user), logins))
    rig.cancel(*jobs.values())
    assert [job_of(done.stdout) for done in seen] == [{jobs[user]} for user in logins], [
        d.stderr for d in seen
    ][:3]


def test_a_login_waits_for_the_job_that_is_just_starting(rig: Rig) -> None:
    """A prolog keeps the extern step away until the login waits for it."""
    prolog = rig.cluster.sandbox.layout.slurm_conf / "prolog.sh"
    go = prolog.with_name("go")
    prolog.write_text("#!/bin/sh\nfor n in $(seq 300); do [ -e /etc/slurm/go ] && exit 0; sleep 0.1; done\n")
    prolog.chmod(0o755)
    with rig.slurm_conf("Prolog=/etc/slurm/prolog.sh"), ThreadPoolExecutor(1) as other:
        try:
            job = rig.submit("nlp1", "reserved-1", running=False)
            until(lambda: rig.cluster.job(job, "nlp1").state in ("RUNNING", "CONFIGURING") or None)
            login = other.submit(rig.ssh, "sshd-reserved-1", "nlp1")
            waits = ("pgrep", "-f", "/job-starting ")
            until(lambda: rig.cluster.inside(*waits, check=False).stdout or login.done() or None)
            assert not login.done(), login.result()
        finally:
            go.touch()
        admitted = login.result(60)
        assert job_of(admitted.stdout) == {job}, admitted.stderr
        assert "no active jobs" in admitted.stderr  # Slurm's own first answer: it was asked twice
        rig.cancel(job)
        rig.cluster.ended(job, "nlp1")
    go.unlink()


def test_keyboard_interactive_sessions_cannot_be_adopted_and_are_refused(rig: Rig) -> None:
    """Their account phase runs in another process than the session: Slurm's module lets them in, but to no
    job."""
    options = ("PreferredAuthentications=keyboard-interactive", "BatchMode=no")
    rig.serve("sshd-kbd", "reserved-1", "-o", "KbdInteractiveAuthentication=yes")
    stack = rig.cluster.sandbox.layout.tree / "var/spool/pam.d/sshd-kbd"
    adopt = f"account required {rig.adopt()} service=sshd-kbd nodename=reserved-1\n"
    foreign = stack.read_text()
    stack.write_text(f"auth sufficient pam_permit.so\n{adopt}{foreign}")
    job = rig.submit("nlp1", "reserved-1")
    outside = rig.ssh("sshd-kbd", "nlp1", options=options)
    assert (outside.returncode, job_of(outside.stdout)) == (0, set())
    stack.write_text(f"auth sufficient pam_permit.so\n{foreign}")
    rig.installer("install", "sshd-kbd", "--role", "compute", "--node", "reserved-1")
    refused = rig.ssh("sshd-kbd", "nlp1", options=options)
    assert refused.returncode == 254
    assert "Logins by keyboard-interactive cannot be" in refused.stdout
    assert job_of(refused.stdout) == set()
    assert job_of(rig.ssh("sshd-kbd", "nlp1").stdout) == {job}  # the same with a key
    assert rig.ssh("sshd-kbd", ADMIN, "id -un", options=options).stdout == f"{ADMIN}\n"
    rig.cancel(job)


def test_a_rule_that_ends_the_stack_early_opens_nothing(rig: Rig) -> None:
    """`account sufficient pam_localuser.so` is Red Hat's, and Debian's with sssd: what is appended after it
    is never reached, and everybody of /etc/passwd gets in."""
    rig.serve("sshd-early", "reserved-1")
    stack = rig.cluster.sandbox.layout.tree / "var/spool/pam.d/sshd-early"
    adopt = f"account required {rig.adopt()} service=sshd-early nodename=reserved-1\n"
    early = f"account sufficient pam_localuser.so\n{stack.read_text()}"
    stack.write_text(f"{early}{adopt}")
    assert rig.ssh("sshd-early", "nlp2").returncode == 0
    stack.write_text(early)
    rig.installer("install", "sshd-early", "--role", "compute", "--node", "reserved-1")
    assert rig.ssh("sshd-early", "nlp2").returncode == 255
    rig.installer("remove", "sshd-early")
    assert stack.read_text() == early


def closed_for_users_open_for_administrators(rig: Rig, service: str, user: str) -> None:
    refused = rig.ssh(service, user)
    assert refused.returncode == 255, refused
    assert refused.stdout == ""
    for administrator in ADMINISTRATORS:
        assert rig.ssh(service, administrator, "id -un").stdout == f"{administrator}\n"


def test_slurm_conf_unreadable(rig: Rig) -> None:
    job = rig.submit("nlp1", "reserved-1")
    conf = rig.cluster.sandbox.layout.slurm_conf / "slurm.conf"
    text = conf.read_text()
    try:
        conf.write_text("NoSuchKey=1\n")
        closed_for_users_open_for_administrators(rig, "sshd-reserved-1", "nlp1")
        conf.unlink()
        conf.mkdir()
        closed_for_users_open_for_administrators(rig, "sshd-reserved-1", "nlp1")
        conf.rmdir()
    finally:
        if conf.is_dir():
            conf.rmdir()
        conf.write_text(text)
    assert job_of(rig.ssh("sshd-reserved-1", "nlp1").stdout) == {job}
    rig.cancel(job)


def test_the_module_missing(rig: Rig) -> None:
    job = rig.submit("nlp1", "reserved-1")
    rig.cluster.inside("mount", "--bind", "/dev/null", rig.adopt())
    try:
        closed_for_users_open_for_administrators(rig, "sshd-reserved-1", "nlp1")
    finally:
        rig.cluster.inside("umount", rig.adopt())
    rig.cancel(job)


def test_slurmd_dead(rig: Rig) -> None:
    """Its jobs live on, and no scancel would reach them: nobody gets in, not even who has a job."""
    job = rig.submit("nlp1", "reserved-2")
    assert job_of(rig.ssh("sshd-reserved-2", "nlp1").stdout) == {job}
    slurmd = rig.cluster.sandbox.running().processes["slurmd-reserved-2"]
    assert send(slurmd, signal.SIGKILL)
    closed_for_users_open_for_administrators(rig, "sshd-reserved-2", "nlp1")
    assert "slurmd does not run" in rig.ssh("sshd-reserved-2", "nlp1").stderr


@pytest.fixture(scope="module")
def login(rig: Rig) -> Rig:
    """An sshd with the stack of a login node: two sessions for each person, four for all together."""
    rig.serve("sshd-front", "front-1")
    rig.installer("install", "sshd-front", "--role", "login", "--sessions", "/run/hpctools-sessions")
    return rig


def test_sessions_on_a_login_node_are_limited(login: Rig) -> None:
    """Whatever their kind (`ssh -N` has no utmp record); the third is told of the others; administrators are
    not counted."""
    first = login.stay("sshd-front", "nlp1")
    silent = login.begin("sshd-front", "nlp1", "-N")
    claims = "ls /run/hpctools-sessions/$(id -u nlp1) | wc -l"
    until(lambda: login.cluster.inside("sh", "-c", claims).stdout == "2\n" or None, 10)
    refused = login.ssh("sshd-front", "nlp1", "id")
    assert refused.returncode == 255
    assert "nlp1: you have 2 sessions on front-1, and the limit is 2:" in refused.stderr
    ways_out = re.findall(r"from 127.0.0.1; to end it from another one: kill (\d+)", refused.stderr)
    assert len(ways_out) == 2
    for user in ("nlp2", "nlp3"):
        login.stay("sshd-front", user)
    assert "all the 4 sessions" in login.ssh("sshd-front", "cv1", "id").stderr
    for administrator in ADMINISTRATORS * 2:
        assert login.ssh("sshd-front", administrator, "id -un").stdout == f"{administrator}\n"
    login.cluster.inside("kill", ways_out[0], user="nlp1")
    until(lambda: first.poll() is not None or silent.poll() is not None or None, 10)
    assert login.ssh("sshd-front", "nlp1", "id -un").stdout == "nlp1\n"


def test_sessions_that_died_lock_nobody_out(login: Rig) -> None:
    """Their sshd is killed, so that nothing of PAM runs at their end."""
    sessions = [login.stay("sshd-front", "cv1") for _ in range(2)]
    assert login.ssh("sshd-front", "cv1").returncode == 255
    killed = (
        "for p in $(ls /run/hpctools-sessions/$(id -u cv1)); do kill -9 ${p%-*} $(pgrep -P ${p%-*}); done"
    )
    login.cluster.inside("sh", "-c", killed)
    until(lambda: all(session.poll() is not None for session in sessions) or None, 10)
    for _ in range(2):
        login.stay("sshd-front", "cv1")


def test_sessions_that_come_at_once_are_counted_one_by_one(login: Rig) -> None:
    until(lambda: login.ssh("sshd-front", "cv2", "id").returncode == 0 or None, 10)
    sessions = [login.begin("sshd-front", "cv2", "echo in; exec sleep 600") for _ in range(12)]
    until(lambda: sum(session.poll() is not None for session in sessions) >= 10 or None, 30)
    admitted = [session for session in sessions if session.poll() is None]
    assert [session.stdout.readline() for session in admitted] == ["in\n"] * 2


def test_sessions_by_keyboard_interactive_count_as_long_as_others(login: Rig) -> None:
    """PAM is asked about them in a process that ends before the session begins."""
    options = ("PreferredAuthentications=keyboard-interactive", "BatchMode=no")
    login.serve("sshd-typed", "front-1", "-o", "KbdInteractiveAuthentication=yes")
    stack = login.cluster.sandbox.layout.tree / "var/spool/pam.d/sshd-typed"
    stack.write_text(f"auth sufficient pam_permit.so\n{stack.read_text()}")
    login.installer("install", "sshd-typed", "--role", "login", "--sessions", "/run/hpctools-typed")
    for _ in range(2):
        login.stay("sshd-typed", "nlp1", options=options)
    refused = login.ssh("sshd-typed", "nlp1", "id", options=options)
    assert refused.returncode != 0
    assert "uid=" not in refused.stdout


def test_a_limit_that_fails_lets_people_in(login: Rig) -> None:
    login.cluster.inside("mount", "-t", "tmpfs", "-o", "ro", "none", "/var/spool/hpctools-pam")
    try:
        for _ in range(4):
            login.stay("sshd-front", "nlp1")
    finally:
        login.cluster.inside("umount", "/var/spool/hpctools-pam")

"""Login nodes behind HAProxy: drained while somebody is there, and taken back; all of it real."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.rise import up
from tests.system.harness import Cluster, until
from tests.system.login_rig import ROOT, EntranceRig, Service
from tests.system.pam_rig import ADMIN

pytestmark = pytest.mark.timeout(300)
NODES = ("front-1", "front-2")


class DrainRig(EntranceRig):
    """With the commands that people and administrators type."""

    def login(self, *words: str) -> subprocess.Popen[str]:
        """Begin `hpctools login`, as an administrator."""
        token = self.service.admin_token
        return self._begin(token, "-m", "hpctools.cli.main", "login", *words)

    def hp_login(self, *words: str) -> subprocess.Popen[str]:
        """Begin `hp-login`, as cv2."""
        program = "from hpctools.cli.hp_login import main; raise SystemExit(main())"
        return self._begin(self.service.own_token, "-c", program, *words)

    def _begin(self, token: str, *words: str) -> subprocess.Popen[str]:
        config = self.service.folder / "ssh_config"
        hosts = {node: self.ports[f"sshd-{node}"] for node in NODES}
        lines = [f"Host {node}\n  HostName 127.0.0.1\n  Port {port}\n" for node, port in hosts.items()]
        config.write_text("".join(lines))
        told = {
            "HPCTOOLS_SSH_CONFIG": str(config),
            "HPCTOOLS_API": f"http://127.0.0.1:{self.service.port}",
            "HPCTOOLS_API_TOKEN": token,
        }
        argv = [sys.executable, *words]
        pipe = subprocess.PIPE
        environment = {**os.environ, **told}
        return subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str) -> Iterator[DrainRig]:
    """Two login nodes, the service, HAProxy."""
    folder = tmp_path_factory.mktemp("drain")
    sandbox, service, made = Sandbox(folder / "state"), Service(folder, site_file.read_text()), None
    try:
        up(sandbox, site_file, 2, lambda name, seconds: None, slurm=slurm_release)
        service.start()
        made = DrainRig(Cluster(sandbox), service, NODES)
        for node in NODES:
            made.serve_login(node)
        made.stand_before(folder)
        yield made
    finally:
        if made:
            made.leave()
            made.end()
        if service.process:
            service.stop()
        down(sandbox)


def test_a_node_is_drained_while_somebody_is_there_and_taken_back(rig: DrainRig) -> None:
    """Who is at a terminal is told why and when; new people get to the other node; then nobody is left."""
    until(lambda: rig.reached() == set(NODES) or None, 60)
    session = rig.begin("sshd-front-1", "nlp1", "-tt", "sleep 600")
    rig.until_known("nlp1", 1)
    draining = rig.login("drain", "front-1", "--wait", "--deadline", "15s", "--message", "new kernel")
    until(lambda: rig.reached() == {"front-2"} or None, 60)
    told, _ = session.communicate(timeout=60)
    said, seen = draining.communicate(timeout=90)
    assert session.returncode == 255
    assert "** Message of front-1 to you:" in told
    assert "takes no new sessions: new kernel (sessions that are left are ended " in " ".join(told.split())
    assert draining.returncode == 0, seen
    assert "nlp1" in seen
    # Those who came through HAProxy a moment before may still have been leaving.
    report = (
        r"front-1: \d+ sessions? at first, "
        r"\d+ left by themselves, 1 ended at the deadline; nobody is left.*\n"
    )
    assert re.fullmatch(report, said), said
    assert rig.reached() == {"front-2"}
    back = rig.login("undrain", "front-1")
    assert back.communicate(timeout=60)[0] == "front-1 takes sessions again\n"
    until(lambda: rig.reached() == set(NODES) or None, 60)


def test_who_comes_to_a_drained_node_itself_is_refused_there(rig: DrainRig) -> None:
    """Told why and where to go; not who has a session there, nor an administrator."""
    rig.stay("sshd-front-1", "nlp1")
    rig.until_known("nlp1", 1)
    said = rig.login("drain", "front-1", "--message", "new kernel").communicate(timeout=60)
    assert said == ("front-1 takes no new sessions\n", "")
    until(lambda: rig.ssh("sshd-front-1", "nlp2", "id").returncode == 255 or None, 60)
    refused = rig.ssh("sshd-front-1", "nlp2", "id")
    assert "front-1 takes no new sessions: new kernel." in " ".join(refused.stderr.split())
    assert "hp-login finds one" in " ".join(refused.stderr.split())
    for user in ("nlp1", ADMIN):
        assert rig.ssh("sshd-front-1", user, "id -un").stdout == f"{user}\n"
    back = rig.login("undrain", "front-1").communicate(timeout=60)
    assert back == ("front-1 takes sessions again\n", "")
    until(lambda: rig.ssh("sshd-front-1", "nlp2", "id -un").stdout == "nlp2\n" or None, 60)


def test_who_is_where_is_listed(rig: DrainRig) -> None:
    rig.stay("sshd-front-2", "cv1")
    rig.until_known("cv1", 1)
    listed = rig.login("sessions", "--user", "cv1").communicate(timeout=60)[0].splitlines()
    nodes = rig.login("nodes").communicate(timeout=60)[0].splitlines()
    assert listed[0].split() == ["SESSION", "USER", "NODE", "KIND", "FOR", "FROM"]
    assert listed[1].split()[1:4] == ["cv1", "front-2", "ssh"]
    assert listed[1].split()[-1] == "127.0.0.1"
    assert [line.split()[:2] for line in nodes[1:]] == [["front-1", "up"], ["front-2", "up"]]


def test_hp_login_goes_back_to_where_somebody_is_and_ends_their_session(rig: DrainRig) -> None:
    session = rig.stay("sshd-front-2", "cv2")
    rig.until_known("cv2", 1)
    way, _ = rig.hp_login("--user", "cv2", "--dry-run").communicate(timeout=60)
    assert way == "front-2: your session is on front-2.\n"
    listed = rig.hp_login("--user", "cv2", "--sessions", "--json").communicate(timeout=60)[0]
    ((number, node),) = [(each["id"], each["node"]) for each in json.loads(listed)["sessions"]]
    assert node == "front-2"
    refused = rig.hp_login("--user", "nlp1", "--sessions").communicate(timeout=60)[1]
    assert "for a token of your own (hpctools-api token create --user)" in refused
    ended = rig.hp_login("--end", str(number)).communicate(timeout=60)[0]
    assert ended == f"session {number} of cv2 on front-2 will end\n"
    assert session.wait(30) == 255


def test_hp_login_goes_back_to_a_tmux_that_was_left_and_ends_it(rig: DrainRig) -> None:
    """A real one: its server has left the session that began it before the session ends."""
    usual = rig.hp_login("--user", "cv2", "--dry-run").communicate(timeout=60)[0].partition(":")[0]
    (node,) = set(NODES) - {usual}
    begun = rig.ssh(f"sshd-{node}", "cv2", "tmux new-session -d -s work 'exec sleep 600' && tmux ls")
    assert begun.stdout.startswith("work: 1 windows"), begun.stderr

    def listed() -> list[dict[str, Any]]:
        told = rig.hp_login("--user", "cv2", "--sessions", "--json").communicate(timeout=60)[0]
        found: list[dict[str, Any]] = json.loads(told)["sessions"]
        return found

    def waiting() -> int | None:
        found = listed()
        there = [(each["node"], each["kind"]) for each in found]
        return int(found[0]["id"]) if there == [(node, "tmux")] else None

    number = until(waiting, 30)
    way = rig.hp_login("--user", "cv2", "--dry-run").communicate(timeout=60)[0]
    assert way == f"{node}: your tmux is on {node}.\n"
    assert rig.ssh(f"sshd-{node}", "cv2", "tmux has-session -t work").returncode == 0, "it outlived the visit"
    number = until(waiting, 30)
    ended = rig.hp_login("--end", str(number)).communicate(timeout=60)[0]
    assert ended == f"session {number} of cv2 on {node} will end\n"
    until(lambda: listed() == [] or None, 30)
    assert rig.ssh(f"sshd-{node}", "cv2", "tmux has-session -t work").returncode == 1

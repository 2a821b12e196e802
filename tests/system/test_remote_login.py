"""A laptop before login nodes that count sessions: real sshds, our PAM stack, agents and the service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hpctools.sandbox import ports
from tests.system.harness import until
from tests.system.login_rig import LIMIT, ROOT, LoginRig, login_nodes

pytestmark = pytest.mark.timeout(300)
NODES = ("front-1", "front-2")
USER = "nlp1"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str) -> Iterator[LoginRig]:
    """Two login nodes and the service."""
    folder, nodes = tmp_path_factory.mktemp("remote-login"), dict.fromkeys(NODES, "open")
    with login_nodes(folder, site_file, slurm_release, nodes) as made:
        yield made


class Laptop:
    """A researcher's machine, which asks the service for the best login node."""

    def __init__(self, home: Path, rig: LoginRig) -> None:
        self.home, self.rig = home, rig
        (home / ".ssh").mkdir()
        (home / "job.sh").write_text("#!/bin/bash\n#SBATCH -pnlp\nhostname\n")
        (home / "token").touch(mode=0o600)
        (home / "token").write_text(rig.service.admin_token)
        gone = ports.choose(["gone"])["gone"]
        self.ports = {**{node: rig.ports[f"sshd-{node}"] for node in NODES}, "old-1": gone}
        hosts = "".join(f"Host {n}\n  HostName 127.0.0.1\n  Port {p}\n" for n, p in self.ports.items())
        common = f"  User {USER}\n  IdentityFile {rig.cluster.sandbox.layout.key}\n  BatchMode yes\n"
        files = f"  UserKnownHostsFile {home}/.ssh/known_hosts\n"
        (home / ".ssh/config").write_text(f"{hosts}Host *\n{common}{files}")
        self.know(*NODES)

    def know(self, *nodes: str) -> None:
        """Have the host keys of these nodes, and of no others."""
        public = (self.rig.tree / "etc/ssh/ssh_host_ed25519_key.pub").read_text()
        key = " ".join(public.split()[:2])
        lines = "".join(f"[127.0.0.1]:{self.ports[node]} {key}\n" for node in nodes)
        (self.home / ".ssh/known_hosts").write_text(lines)

    def list_nodes(self, *nodes: str, api: bool = True) -> None:
        """Write clusters.yaml."""
        asked = f", api: 'http://127.0.0.1:{self.rig.service.port}'" if api else ""
        text = f"clusters: {{uni: {{login_nodes: [{', '.join(nodes)}]{asked}}}}}\ndefault: uni\n"
        (self.home / "clusters.yaml").write_text(text)

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A command on it."""
        told = {"HOME": str(self.home), "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
        told |= {"HPCTOOLS_SSH_CONFIG": str(self.home / ".ssh/config")}
        told |= {"HPCTOOLS_CLUSTERS": str(self.home / "clusters.yaml")}
        told |= {"HPCTOOLS_API_TOKEN_FILE": str(self.home / "token")}
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SSH_", "HPCTOOLS"))}
        return subprocess.run(
            [sys.executable, "-m", f"hpctools.cli.{program.replace('-', '_')}", *words],
            capture_output=True, text=True, timeout=120, cwd=self.home, env={**kept, **told}, check=False,
        )  # fmt: skip


@pytest.fixture
def laptop(rig: LoginRig, tmp_path: Path) -> Iterator[Laptop]:
    yield Laptop(tmp_path, rig)
    rig.leave()
    rig.cluster.inside("scancel", "-u", USER)
    until(lambda: rig.service.ask("GET", "/v1/login/sessions")["sessions"] == [] or None, 30)


def accepted(rig: LoginRig, node: str) -> int:
    """How often a key of the person's was taken on a node."""
    log = (rig.cluster.sandbox.layout.logs / f"sshd-{node}.log").read_text(errors="replace")
    return log.count(f"Accepted publickey for {USER} ")


def stay_at_limit(rig: LoginRig, nodes: Sequence[str] = NODES) -> None:
    for node in nodes[:LIMIT]:
        rig.stay(f"sshd-{node}", USER)
    rig.until_known(USER, LIMIT)


@pytest.mark.parametrize("api", [False, True], ids=["alone", "with the API"])
def test_who_has_all_their_sessions_is_told_so_and_nothing_is_uncertain(
    rig: LoginRig, laptop: Laptop, api: bool
) -> None:
    """Before, it was "not known whether it was submitted", after five attempts on each node."""
    laptop.list_nodes(*NODES, api=api)
    stay_at_limit(rig)
    before = [accepted(rig, node) for node in NODES]
    done = laptop.run("hp-submit", "--cluster", "uni", "job.sh")
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    words = f"{USER}: you have {LIMIT} sessions on the login nodes, and the limit is {LIMIT}:"
    assert f"does not let {USER} in; it says:\n{words}" in done.stderr
    assert "front-1, for " in done.stderr
    assert "To end one: log out there, or hp-login --end " in done.stderr
    assert "not known" not in done.stderr
    assert ("the site's API names no login node: " in done.stderr) == api
    # sshd writes down that the key was taken before PAM is asked in some releases; never more than once.
    assert all(accepted(rig, node) - count <= 1 for node, count in zip(NODES, before, strict=True))
    rig.leave()
    rig.until_known(USER, 0)
    assert laptop.run("hp-submit", "--cluster", "uni", "job.sh").returncode == 0


def test_the_service_says_where_to_submit(rig: LoginRig, laptop: Laptop) -> None:
    """Where the person's session is, although it is not in their list; hp-login goes there, too."""
    laptop.list_nodes("old-1")
    rig.stay("sshd-front-2", USER)
    rig.until_known(USER, 1)
    count = accepted(rig, "front-2")
    done = laptop.run("hp-submit", "--cluster", "uni", "--json", "--hold", "job.sh")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["job_id"]
    assert accepted(rig, "front-2") == count + 1
    rig.until_known(USER, 1)
    there = laptop.run("hp-login", "--", "-T", "hostname")
    assert (there.returncode, there.stdout) == (0, "front-2\n"), there.stderr
    assert "your session is on front-2." in there.stderr


def test_a_node_that_the_service_names_and_nobody_trusts_yet_stops_nothing(
    rig: LoginRig, laptop: Laptop
) -> None:
    """It comes after the person's own list; `trust` offers its key, though it is in nobody's list."""
    laptop.list_nodes("front-1")
    laptop.know("front-1")
    rig.stay("sshd-front-2", USER)
    rig.until_known(USER, 1)
    done = laptop.run("hp-submit", "--cluster", "uni", "--hold", "job.sh")
    assert (done.returncode, "Submitted batch job" in done.stdout, done.stderr) == (0, True, "")
    rig.until_known(USER, 1)
    listed = subprocess.run(
        ["ssh-keygen", "-lf", str(rig.tree / "etc/ssh/ssh_host_ed25519_key.pub")],
        capture_output=True, text=True, check=True,
    ).stdout.split()[1]  # fmt: skip
    trusted = laptop.run("hp-submit", "trust", "uni", "--fingerprint", listed)
    assert "front-2: remembered in " in trusted.stdout, trusted.stderr
    rig.until_known(USER, 1)
    quiet = laptop.run("hp-submit", "--cluster", "uni", "--hold", "job.sh")
    assert (quiet.returncode, quiet.stderr) == (0, "")


def test_what_etc_environment_says_is_heard_on_the_cluster(rig: LoginRig, laptop: Laptop) -> None:
    """No login shell starts there: PAM reads the file, which here refuses what nobody knows the costs of."""
    (rig.tree / "tmp/front-1/environment").write_text("HPCTOOLS_BUDGET=refuse\n")
    bound = rig.on_login("front-1", ["mount", "--bind", "/tmp/front-1/environment", "/etc/environment"])
    assert bound.wait(20) == 0
    try:
        laptop.list_nodes("front-1", api=False)
        done = laptop.run("hp-submit", "--cluster", "uni", "--hold", "job.sh")
    finally:
        assert rig.on_login("front-1", ["umount", "/etc/environment"]).wait(20) == 0
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    said = "hp-submit: the budget service does not answer, and this site submits nothing without it;"
    assert done.stderr.startswith(said)

"""The page "from nothing to a first job on your own nodes", followed word by word on machines of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpctools.sandbox import cgroups
from hpctools.sandbox.hosts import Fleet, Hosts, hosts
from hpctools.sandbox.hosts.plan import Group
from tests.system.bootstrap_rig import need_cgroups
from tests.system.harness import until
from tests.system.page import Block, blocks, follow, on_host

PAGE = "bootstrap-own-nodes.md"
FLEET = Fleet(
    groups=(Group("ctl", "controller", 1), Group("login", "login", 2), Group("worker", "compute", 3)),
    provider="own",
)
CODE = Path(__file__).resolve().parents[2]
PEOPLE = {"ada": 20001, "ben": 20002, "cleo": 20003}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Hosts]:
    """Machines as the page presumes them: Debian, ssh as root from ctl-1, people, this repository."""
    need_cgroups()
    with hosts(fleet=FLEET) as made:
        for host in made:
            for name, uid in PEOPLE.items():
                host.run(["useradd", "--uid", str(uid), "--create-home", "--shell", "/bin/bash", name])
        controller = made["ctl-1"]
        controller.write("/root/.ssh/id_ed25519", made.rack.key.read_text(), 0o600)
        controller.write("/root/.ssh/config", "StrictHostKeyChecking accept-new\nLogLevel ERROR\n", 0o600)
        controller.run(["mkdir", "-p", "/opt/hpctools"])
        # A copy: what the page takes to the nodes is this folder, not a link to where it stands.
        controller.run(["cp", "-r", str(CODE / "pam"), "/opt/hpctools/pam"])
        controller.run(["ln", "-s", str(Path(sys.executable).parent / "hpctools"), "/usr/local/bin"])
        # What the kernel below the machines has; Debian 12's own is what the page presumes.
        controller.write("/etc/slurm/facts.yaml", f"cgroup: {cgroups.version()}\n")
        yield made


def _do(cluster: Hosts, block: Block) -> str:
    if block.kind == "yaml":
        cluster["ctl-1"].write(block.where[0], block.text)
        return ""
    return follow(block, lambda name: on_host(cluster[name], block))


def test_every_command_of_the_page_up_to_the_first_job(cluster: Hosts) -> None:
    printed = [_do(cluster, block) for block in blocks(PAGE)]
    assert printed[-1].splitlines()[-2:] == ["worker-1", "worker-2"]
    assert "session-limit $PPID 4 0 " in cluster["login-1"].read("/etc/pam.d/sshd")
    _login_follows_the_job(cluster)


def _login_follows_the_job(cluster: Hosts) -> None:
    """What the page says last: in while the job runs, out a moment after it."""
    worker, login = cluster["worker-1"], cluster["login-1"]
    assert worker.ssh("ben", "true", check=False).code != 0
    submitted = login.ssh("ben", "sbatch --parsable -p astro -w worker-1 --wrap 'sleep 120'").stdout.strip()
    until(lambda: login.ssh("ben", f"squeue -h -o %T -j {submitted}").stdout.strip() == "RUNNING")
    assert f"job_{submitted}" in worker.ssh("ben", "cat /proc/self/cgroup").stdout
    login.ssh("ben", f"scancel {submitted}")
    until(lambda: worker.ssh("ben", "true", check=False).code != 0)
    assert worker.ssh("root", "true").code == 0

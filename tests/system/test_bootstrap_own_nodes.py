"""The page "from nothing to a first job on your own nodes", followed word by word on machines of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from hpctools.sandbox import cgroups
from hpctools.sandbox.hosts import Fleet, Host, Hosts, hosts
from hpctools.sandbox.hosts.plan import Group
from hpctools.slurm.run import Completed, run
from tests.system.bootstrap_rig import need_cgroups
from tests.system.harness import until
from tests.system.page import Block, blocks, follow, on_host

pytestmark = pytest.mark.timeout(480)
PAGE = "bootstrap-own-nodes.md"
FLEET = Fleet(
    groups=(Group("ctl", "controller", 1), Group("login", "login", 2), Group("worker", "compute", 3)),
    provider="own",
)
COMMANDS, TOGETHER = "10.", "11."
SERVICE = "api.physics.example"
TLS = """\
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend tls
  bind :443 ssl crt /etc/ssl/service.pem
  http-request set-header X-Forwarded-Proto https
  default_backend service
backend service
  server service 127.0.0.1:8642
"""
CERTIFICATE = f"""\
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={SERVICE} \
  -addext subjectAltName=DNS:{SERVICE} -keyout /etc/ssl/service.key -out /etc/ssl/service.crt 2>/dev/null
cat /etc/ssl/service.crt /etc/ssl/service.key >/etc/ssl/service.pem
"""
TRUST = "cp /etc/ssl/service.crt /usr/local/share/ca-certificates/ && update-ca-certificates >/dev/null 2>&1"
CODE = Path(__file__).resolve().parents[2]
LOGINS = ("login-1", "login-2")
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


def _follow(cluster: Hosts, wanted: Callable[[str], bool]) -> list[str]:
    """What the commands of some sections printed."""
    return [_do(cluster, block) for block in blocks(PAGE) if wanted(block.section)]


@pytest.fixture(scope="module")
def followed(cluster: Hosts) -> list[str]:
    """What the page's commands printed, up to the first job."""
    return _follow(cluster, lambda section: not section.startswith((COMMANDS, TOGETHER)))


@pytest.fixture(scope="module")
def commanded(cluster: Hosts, followed: list[str]) -> list[str]:
    """The same of the section about people's commands. Python's packages are this repository's."""
    for name in LOGINS:
        _install_packages(cluster[name])
    return _follow(cluster, lambda section: section.startswith(COMMANDS))


def test_every_command_of_the_page_up_to_the_first_job(cluster: Hosts, followed: list[str]) -> None:
    assert followed[-1].splitlines()[-2:] == ["worker-1", "worker-2"]
    assert "session-limit $PPID 4 0 " in cluster["login-1"].read("/etc/pam.d/sshd")
    assert "# hpctools: begin" in cluster["worker-1"].read("/etc/pam.d/su")
    assert cluster["ctl-1"].ssh("ben", "true", check=False).code != 0
    assert cluster["ctl-1"].ssh("root", "true").code == 0
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


def test_a_laptop_submits_to_login_nodes_that_the_page_has_made(
    cluster: Hosts, commanded: list[str], tmp_path: Path
) -> None:
    """By the PATH that their sshd gives; the page publishes the fingerprint that the laptop asks about."""
    assert {line.split()[1] for line in commanded[-1].splitlines()} == set(_fingerprints(cluster))
    laptop = _laptop(cluster, tmp_path)
    for key in _fingerprints(cluster):
        laptop("trust", "uni", "--fingerprint", key, check=False)
    said = laptop("--cluster", "uni", "--json", "-p", "astro", "--hold", "job.sh")
    job = json.loads(said.stdout)["job_id"]
    shown = cluster["ctl-1"].run(["squeue", "-h", "-j", str(job), "-o", "%u %T"]).stdout
    assert shown == "ben PENDING\n"
    cluster["ctl-1"].run(["scancel", str(job)])
    for name in LOGINS:
        assert cluster[name].ssh("ben", "command -v hp-submit").stdout == "/usr/local/bin/hp-submit\n"
        assert "hp-submit" in cluster[name].read("/etc/bash_completion.d/hpctools")


def _fingerprints(cluster: Hosts) -> list[str]:
    show = ["ssh-keygen", "-lf", "/etc/ssh/ssh_host_ed25519_key.pub"]
    return [cluster[name].run(show).stdout.split()[1] for name in LOGINS]


def _laptop(cluster: Hosts, home: Path) -> Callable[..., Completed]:
    """hp-submit of somebody whose machine is none of the cluster's, but reaches its login nodes."""
    hosts_ = "".join(f"Host {name}\n  HostName {cluster[name].machine.address}\n" for name in LOGINS)
    (home / "ssh").write_text(
        f"{hosts_}Host *\n  User ben\n  IdentityFile {cluster.rack.key}\n  UserKnownHostsFile {home}/known\n"
    )
    (home / "clusters.yaml").write_text(f"clusters: {{uni: [{', '.join(LOGINS)}]}}\n")
    (home / "job.sh").write_text("#!/bin/bash\nhostname\n")
    told = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(CODE)}
    told |= {"HPCTOOLS_SSH_CONFIG": f"{home}/ssh", "HPCTOOLS_CLUSTERS": f"{home}/clusters.yaml"}
    inside = ["nsenter", f"--target={cluster.rack.ground.pid}", "--net", "--"]
    program = [*inside, sys.executable, "-m", "hpctools.cli.hp_submit"]

    def submit(*words: str, check: bool = True) -> Completed:
        return run([*program, *words], timeout=90, env=told, cwd=home, check=check)

    return submit


@pytest.mark.usefixtures("commanded")
@pytest.mark.slow
def test_login_nodes_behind_one_name_with_agents_and_a_drain(cluster: Hosts) -> None:
    """The page's last section. Python's packages are this repository's; TLS is a proxy of the site's own."""
    _install_packages(cluster["ctl-1"])
    _speak_tls(cluster)
    printed = _follow(cluster, lambda section: section.startswith(TOGETHER))
    assert [line.split()[:2] for line in printed[-1].splitlines()[1:3]] == [
        ["login-1", "up"],
        ["login-2", "up"],
    ]
    until(lambda: {_reached(cluster) for _ in range(4)} == {"login-1", "login-2"} or None, 60)
    _counted_together(cluster)
    cluster["login-1"].run(
        ["/opt/hpctools/bin/hpctools", "login", "drain", "--here", "--message", "new kernel"]
    )
    until(lambda: {_reached(cluster) for _ in range(4)} == {"login-2"} or None, 60)


def _counted_together(cluster: Hosts) -> None:
    """Four sessions by the one name, on whichever nodes; the fifth is refused, and told why."""
    controller, node = cluster["ctl-1"], "ssh -o BatchMode=yes -p 2222 ben@ctl-1"
    hold = f"for n in 1 2 3 4; do {node} 'hostname; exec sleep 300' >/tmp/held-$n 2>&1 </dev/null & done"
    controller.run(["sh", "-c", hold])
    held = ["sh", "-c", "cat /tmp/held-?"]
    until(lambda: len(controller.run(held).stdout.split()) == 4 or None, 60)
    told = until(lambda: done if (done := _through(cluster, "true")).code else None, 30)
    assert "ben: you have 4 sessions on the login nodes, and the limit is 4:" in told.stdout + told.stderr
    assert set(controller.run(held).stdout.split()) <= {"login-1", "login-2"}
    controller.run(["pkill", "-f", "^ssh .*ben@ctl-1"])
    until(lambda: _through(cluster, "true").code == 0 or None, 60)


def _install_packages(host: Host) -> None:
    """What pip would put there, and the repository's units beside it."""
    host.run(["mkdir", "-p", "/opt/hpctools/bin", "/opt/hpctools/api", "/opt/hpctools/hpctools/login"])
    programs = {each.name for each in distribution("hpctools").entry_points}
    for program in sorted(programs):
        host.run(["ln", "-s", str(Path(sys.executable).parent / program), "/opt/hpctools/bin"])
    for folder in ("api", "hpctools/login"):
        host.run(["cp", "-r", str(CODE / folder / "systemd"), f"/opt/hpctools/{folder}/systemd"])


def _speak_tls(cluster: Hosts) -> None:
    """The service's name, with a certificate that the login nodes trust."""
    controller = cluster["ctl-1"]
    # What Debian's package asks systemd-tmpfiles for.
    controller.run(["install", "-d", "-o", "haproxy", "-g", "haproxy", "/run/haproxy"])
    controller.run(["bash", "-euc", CERTIFICATE])
    controller.write("/etc/ssl/proxy.cfg", TLS)
    controller.run(["haproxy", "-D", "-f", "/etc/ssl/proxy.cfg"])
    for name in LOGINS:
        cluster[name].write("/etc/ssl/service.crt", controller.read("/etc/ssl/service.crt"))
        cluster[name].run(["sh", "-ec", TRUST])
        line = f"{controller.machine.address} {SERVICE}"
        cluster[name].run(["sh", "-c", f"echo {line} >>/etc/hosts"])


def _through(cluster: Hosts, *words: str) -> Completed:
    """Log in as ben by the one name, as anybody would who keeps host keys."""
    argv = ["ssh", "-o", "BatchMode=yes", "-o", "LogLevel=INFO", "-p", "2222", "ben@ctl-1", *words]
    return cluster["ctl-1"].run(argv, check=False)


def _reached(cluster: Hosts) -> str:
    done = _through(cluster, "hostname")
    assert done.code == 0, done
    return done.stdout.strip()

"""A sandbox whose compute nodes have sshds of their own, each with its own PAM service."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from hpctools.sandbox import ports
from hpctools.sandbox.reconfigure import reconfigure
from hpctools.slurm.run import Completed
from tests.system.harness import Cluster, until

INSTALLER = Path(__file__).parents[2] / "pam" / "install.py"
ADMIN, GROUP_ADMIN = "nlp-head", "nlp-lead-a"
SETTINGS = {
    "access": {
        "administrators": {"users": [ADMIN, "not-there-yet"], "groups": ["hpc-admins", "no-such-group"]},
        "compute": {"slurmd_pid_file": "/run/slurm/slurmd-%n.pid", "wait_for_job": 10},
        "login": {"sessions_per_user": 2, "sessions": 4},
    }
}
SSHD_CONFIG = """\
ListenAddress 127.0.0.1
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile /etc/ssh/keys
PidFile none
UsePAM yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
PrintMotd no
MaxStartups 300
MaxSessions 100
Subsystem sftp /usr/lib/openssh/sftp-server
"""
# The machine's PAM services stay as they are: the sandbox gets a copy, in its own mount namespace.
COVER = """\
set -eu
mkdir /var/spool/pam.d && cp -a /etc/pam.d/. /var/spool/pam.d && mount --bind /var/spool/pam.d /etc/pam.d
echo 'hpc-admins:x:31999:nlp-lead-a' >>/etc/group
cp /home/nlp1/.ssh/authorized_keys /etc/ssh/keys && chown root: /etc/ssh/keys && chmod 644 /etc/ssh/keys
"""


class Rig:
    """A cluster with an sshd on each compute node and a few more."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.nodes = tuple(f"reserved-{n}" for n in (1, 2))
        self.ports: dict[str, int] = {}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.sessions: list[subprocess.Popen[str]] = []
        cluster.inside("sh", "-c", COVER)
        (cluster.sandbox.layout.tree / "etc/ssh/sshd_pam").write_text(SSHD_CONFIG)
        (cluster.sandbox.layout.tree / "tmp/settings.json").write_text(json.dumps(SETTINGS))

    def installer(self, verb: str, service: str, *words: str, check: bool = True) -> Completed:
        """Run the installer inside, on the system's own Python."""
        argv = [
            "/usr/bin/python3",
            str(INSTALLER),
            verb,
            "--service",
            service,
            "--settings",
            "/tmp/settings.json",
        ]
        argv += ["--library", "/var/spool/hpctools-pam", "--state", "/var/spool/hpctools-pam-state", *words]
        return self.cluster.inside(*argv, timeout=60, check=check)

    def serve(self, service: str, host: str, *words: str) -> None:
        """Start an sshd whose PAM service has its name; its stack is the machine's until one is installed."""
        link = f"/usr/local/bin/{service}"
        self.cluster.inside(
            "sh", "-c", f"cp /etc/pam.d/sshd /etc/pam.d/{service}; ln -s /usr/sbin/sshd {link}"
        )
        port = ports.choose([service])[service]
        shell = 'hostname "$1" && shift && exec "$@"'
        sshd = [link, "-D", "-e", "-f", "/etc/ssh/sshd_pam", "-p", str(port), *words, *self._named(service)]
        argv = self.cluster.sandbox.command(["unshare", "--uts", "sh", "-c", shell, "sshd", host, *sshd])
        with (self.cluster.sandbox.layout.logs / f"{service}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        until(lambda: not ports.is_free(port) or None, 10)
        self.ports[service] = port

    def _named(self, service: str) -> list[str]:
        """Since OpenSSH 9.8 the PAM service is a setting, before it was the program's name; and whoever is
        refused often is kept waiting."""
        words = ["-o", f"PAMServiceName={service}", "-o", "PerSourcePenalties=no"]
        known = self.cluster.inside("/usr/sbin/sshd", "-T", "-f", "/etc/ssh/sshd_pam", *words, check=False)
        return words if known.code == 0 else []

    def command(self, service: str, user: str, *words: str, options: Sequence[str] = ()) -> list[str]:
        """The ssh command line."""
        fixed = [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "IdentitiesOnly=yes",
            "BatchMode=yes",
        ]
        settings = [word for option in (*options, *fixed) for word in ("-o", option)]
        key = str(self.cluster.sandbox.layout.key)
        return [
            "ssh",
            "-F",
            "none",
            "-i",
            key,
            "-p",
            str(self.ports[service]),
            *settings,
            f"{user}@127.0.0.1",
            *words,
        ]

    def ssh(
        self, service: str, user: str, command: str = "cat /proc/self/cgroup", options: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Log in, run a command, come back."""
        argv = self.command(service, user, command, options=options)
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=40, check=False
        )

    def begin(
        self, service: str, user: str, *words: str, options: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """Begin to log in; `leave` ends it."""
        pipe = subprocess.PIPE
        argv = self.command(service, user, *words, options=options)
        self.sessions.append(subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        return self.sessions[-1]

    def stay(self, service: str, user: str, options: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Log in and stay; the session has begun when this returns."""
        session = self.begin(service, user, "echo in; exec sleep 600", options=options)
        assert session.stdout is not None
        assert session.stdout.readline() == "in\n", session.communicate(timeout=20)
        return session

    def hold(
        self, service: str, user: str, *words: str, options: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """Connect without a shell, and stay; the connection is there when this returns."""
        told = ("PermitLocalCommand=yes", "LocalCommand=echo in")
        session = self.begin(service, user, *words, options=(*told, *options))
        assert session.stdout is not None
        assert session.stdout.readline() == "in\n", session.communicate(timeout=20)
        return session

    def copy(self, service: str, user: str, file: Path, *words: str) -> subprocess.Popen[str]:
        """Begin to copy a file into somebody's home; `leave` ends it."""
        _, *middle, target = self.command(service, user)
        settings = ["-P" if word == "-p" else word for word in middle]
        argv = ["scp", *words, *settings, str(file), f"{target}:"]
        pipe = subprocess.PIPE
        self.sessions.append(subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        return self.sessions[-1]

    def adopt(self) -> str:
        """Where Slurm's module is: Debian 12 has it elsewhere than Debian 13."""
        find = "ls /lib/security/pam_slurm_adopt.so /lib/*/security/pam_slurm_adopt.so 2>&- | head -n 1"
        return self.cluster.inside("sh", "-c", find).stdout.strip()

    def leave(self) -> None:
        """End all sessions."""
        for session in self.sessions:
            session.kill()
            session.communicate()
        self.sessions.clear()

    def people(self, count: int) -> list[str]:
        """People of the site who are no administrators."""
        names = [user.name for user in self.cluster.sandbox.blueprint().site.users()]
        return [name for name in names if name not in (ADMIN, GROUP_ADMIN)][:count]

    def submit(self, user: str, node: str, script: str = "exec sleep 600", running: bool = True) -> int:
        """Start a job on a node; its processes are there when this returns, unless it need not be running."""
        site = self.cluster.sandbox.blueprint().site
        account = next(person.default_account for person in site.users() if person.name == user)
        department = next(one.department.name for one in site.accounts() if one.name == account)
        where = ["-p", department, "-A", account, "-w", node, "-n1", "--mem=1", "-o", "/dev/null"]
        job = self.cluster.submit(user, *where, "--wrap", script)
        if running:
            self.until_running(job)
        return job

    @contextmanager
    def slurm_conf(self, line: str) -> Iterator[None]:
        """With a line more in slurm.conf, told to all daemons."""
        conf = self.cluster.sandbox.layout.slurm_conf / "slurm.conf"
        text = conf.read_text()
        try:
            conf.write_text(f"{text}{line}\n")
            self._reconfigure()
            yield
        finally:
            conf.write_text(text)
            self._reconfigure()

    def _reconfigure(self) -> None:
        """Not while a job completes: a slurmd may lose the word that it ended (it says "Timeout waiting for
        completion of 1 threads"), and its node takes no job until slurmctld asks again, a minute later."""
        completing = ("squeue", "--noheader", "--states=COMPLETING", "--format=%i")
        until(lambda: not self.cluster.inside(*completing).stdout.strip() or None)
        reconfigure(self.cluster.sandbox)

    def until_running(self, job: int) -> None:
        """Wait until a job's extern step can take somebody in."""
        find = f"cat /sys/fs/cgroup/freezer/slurm_*/uid_*/job_{job}/step_batch/cgroup.procs"
        until(lambda: self.cluster.inside("sh", "-c", find, check=False).stdout.strip() or None, 20)

    def cancel(self, *jobs: int) -> None:
        """Cancel jobs."""
        self.cluster.inside("scancel", *map(str, jobs))

    def end(self) -> None:
        """End what was started here; the sandbox takes the rest down."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)


def ended_after(process: subprocess.Popen[str], since: float, limit: float = 20) -> float:
    """Seconds from `since` (monotonic) until a process has ended."""
    process.communicate(timeout=limit)
    return time.monotonic() - since


def job_of(cgroups: str) -> set[int]:
    """The jobs in whose cgroups a process is."""
    return {int(part[4:]) for part in cgroups.replace("\n", "/").split("/") if part.startswith("job_")}

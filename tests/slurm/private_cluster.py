"""Real Slurm daemons of whatever release is installed here: own ports, own folder, nothing else shared.

Needs root. The daemons and the commands that read SLURM_CONF are of this machine, so the same code runs on
Debian 12 and inside a folder with a later release.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hpctools.slurm.run import Completed, Process, run, start
from hpctools.slurm.versions import knows_cgroup_disabled, parse_release

LIMIT = 40.0
NODES = ("n1", "n2")
SLURM_CONF = """\
ClusterName=contract
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd}
AccountingStoragePass={munge}
AccountingStoreFlags=job_comment
AccountingStorageTRES=gres/gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
ReturnToService=2
MessageTimeout=4
SchedulerParameters=batch_sched_delay=0
SlurmdParameters=config_overrides
NodeName=DEFAULT CPUs=4 RealMemory=1000
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={n1} Gres=gpu:a100:2 Feature=fast
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={n2}
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=1-00:00:00
PartitionName=DEFAULT AllocNodes=login-[1-2]
PartitionName=small Nodes=n2 MaxNodes=1 State=DRAIN AllowAccounts=root AllowQos=normal OverSubscribe=EXCLUSIVE
"""
SLURMDBD_CONF = """\
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={dbd}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={mysql}
StorageLoc=contract
StorageUser=slurm
StoragePass={password}
"""


class PrivateCluster:
    """munged, MariaDB, slurmdbd, slurmctld and two slurmds.

    Attributes:
        conf: slurm.conf; the commands find the cluster by `SLURM_CONF`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "slurm.conf"
        self._processes: dict[str, Process] = {}
        ports = zip(("ctld", "dbd", "mysql", *NODES), _free_ports(3 + len(NODES)), strict=True)
        self._words: dict[str, object] = {
            "folder": folder,
            "host": socket.gethostname(),
            "munge": folder / "munge.socket",
            "password": secrets.token_hex(8),
            **dict(ports),
        }

    def boot(self) -> None:
        """Start everything; return when both nodes take jobs."""
        self._write()
        self._munged()
        self._mariadb()
        self.start("slurmdbd", "slurmdbd", "-D")
        self.answers("slurmdbd", "sacctmgr", "-n", "show", "cluster")
        self.ask("sacctmgr", "-i", "add", "cluster", "contract")
        self.start("slurmctld", "slurmctld", "-D")
        self.answers("slurmctld", "scontrol", "ping")
        for node in NODES:
            self.start(node, "slurmd", "-D", "-N", node)
        until(lambda: self.ask("sinfo", "-h", "-o", "%T", "-p", "all").stdout == "idle\n", "idle nodes")

    def start(self, name: str, *argv: str) -> None:
        """Start a daemon in the foreground."""
        with (self.folder / f"{name}.out").open("ab") as out:
            self._processes[name] = start(argv, stdout=out, stderr=out, env=self.environment())

    def answers(self, name: str, *probe: str) -> None:
        """Wait until a probe of a daemon succeeds; fail when the daemon has ended."""

        def yes() -> bool:
            assert self._processes[name].poll() is None, (self.folder / f"{name}.out").read_text()[-2000:]
            done = self.ask(*probe, check=False)
            words[:] = done.stderr.splitlines()[-3:]
            return done.code == 0

        words: list[str] = [name]
        until(yes, words)

    def stop(self, name: str) -> None:
        """End a daemon and wait for its end."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT)

    def down(self) -> None:
        """End all that runs, those that hold nothing worth keeping at once."""
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait(LIMIT)
        self._processes.clear()

    def ask(self, *argv: str, check: bool = True) -> Completed:
        """Run one of Slurm's commands against the cluster."""
        return run(argv, timeout=LIMIT, check=check, env=self.environment())

    def environment(self) -> dict[str, str]:
        """Ours, with the way to this cluster."""
        sbin = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))}
        return {**kept, "PATH": sbin, "SLURM_CONF": str(self.conf)}

    def _write(self) -> None:
        (self.folder / "state").mkdir()
        self.conf.write_text(SLURM_CONF.format(**self._words))
        (self.folder / "gres.conf").write_text(
            "AutoDetect=off\nNodeName=n1 Name=gpu Type=a100 File=/dev/null,/dev/zero\n"
        )
        release = parse_release(run(["slurmctld", "-V"], timeout=10, env=self.environment()).stdout)
        disabled = "CgroupPlugin=disabled\n" if knows_cgroup_disabled(release) else ""
        (self.folder / "cgroup.conf").write_text(disabled)
        secret = self.folder / "slurmdbd.conf"
        secret.touch(mode=0o600)
        secret.write_text(SLURMDBD_CONF.format(**self._words))

    def _munged(self) -> None:
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        places = {"key-file": key, "socket": self._words["munge"], "pid-file": self.folder / "munge.pid"}
        places |= {"log-file": self.folder / "munge.log", "seed-file": self.folder / "munge.seed"}
        options = [f"--{name}={place}" for name, place in places.items()]
        self.start("munged", "munged", "--foreground", "--force", *options)
        self.answers("munged", "munge", "-n", "-S", str(self._words["munge"]))

    def _mariadb(self) -> None:
        data, sock = self.folder / "data", self.folder / "mysql.sock"
        small = ["--no-defaults", f"--datadir={data}", "--innodb-log-file-size=8M"]
        as_root = ["--user=root", "--auth-root-authentication-method=socket", "--skip-test-db"]
        run(["mariadb-install-db", *small, *as_root], timeout=LIMIT, env=self.environment())
        listen = ["--bind-address=127.0.0.1", f"--port={self._words['mysql']}", f"--socket={sock}"]
        fast = ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M", "--user=root"]
        self.start("mariadb", "mariadbd", *small, *listen, *fast, f"--pid-file={self.folder}/mysql.pid")
        client = ["mariadb", "--no-defaults", f"--socket={sock}", "-e"]
        self.answers("mariadb", *client, "select 1")
        grant = "create user slurm@'127.0.0.1' identified by '{password}'; create user slurm@localhost"
        grant += " identified by '{password}'; create database contract;"
        grant += " grant all on contract.* to slurm@'127.0.0.1'; grant all on contract.* to slurm@localhost"
        self.ask(*client, grant.format(**self._words))


def until(true: Callable[[], bool], what: object, limit: float = LIMIT) -> None:
    """Look until it is so; fail after `limit` seconds."""
    end = time.monotonic() + limit
    while not true():
        assert time.monotonic() < end, f"no {what} within {limit} s"
        time.sleep(0.05)


@contextlib.contextmanager
def private_cluster(folder: Path) -> Iterator[PrivateCluster]:
    """A cluster that is up; it ends with the block."""
    cluster = PrivateCluster(folder)
    try:
        cluster.boot()
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(folder / "data", ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]

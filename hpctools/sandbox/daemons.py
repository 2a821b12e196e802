"""The daemons of a sandbox: how each is started and how one knows that it answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
API_ACCOUNT = "hpcapi"
API_FOLDER = f"/home/{API_ACCOUNT}"


@dataclass(frozen=True)
class Daemon:
    """One daemon.

    Attributes:
        name: what the sandbox calls it, and its log.
        host: the host name that it sees; the primary controller's when empty.
        argv: program and arguments; it must stay in the foreground.
        probe: a command that succeeds, inside, once the daemon answers; or a TCP port on 127.0.0.1.
        port: key of its port in the record; empty when it has none.
        after: steps that must be done before it is started.
    """

    name: str
    host: str
    argv: tuple[str, ...]
    probe: tuple[str, ...] | int
    port: str = ""
    after: tuple[str, ...] = ()

    def on(self, host: str) -> Daemon:
        """The same daemon on a host."""
        return replace(self, host=host)


def _as_account(name: str, *argv: str, **environment: str) -> tuple[str, ...]:
    settings = [f"{key}={value}" for key, value in environment.items()]
    return ("setpriv", f"--reuid={name}", f"--regid={name}", "--init-groups", "--", "env", *settings, *argv)


def munged() -> Daemon:
    """Authentication between all of Slurm's parts."""
    argv = _as_account("munge", "munged", "--foreground")
    return Daemon("munged", "", argv, ("munge", "-n"))


def mariadb() -> Daemon:
    """slurmdbd's store. No TCP port: slurmdbd comes in through the socket as its Unix account."""
    argv = (
        *("mariadbd", "--no-defaults", "--user=mysql", "--datadir=/var/lib/mysql/data", "--skip-networking"),
        *(
            "--socket=/run/mysqld/mysqld.sock",
            "--pid-file=/run/mysqld/mysqld.pid",
            "--innodb-buffer-pool-size=64M",
        ),
        *(
            "--innodb-log-file-size=16M",
            "--innodb-use-native-aio=0",
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-lock-wait-timeout=900",
            # On by default from MariaDB 11.6 on; slurmdbd ends at the first conflict of two writers then.
            "--loose-innodb-snapshot-isolation=OFF",
        ),
    )
    return Daemon("mariadb", "", argv, ("mariadb-admin", "--no-defaults", "ping"), after=("tables",))


def slurmdbd() -> Daemon:
    """Slurm's accounting."""
    probe = ("sacctmgr", "-n", "show", "cluster")
    return Daemon("slurmdbd", "", ("slurmdbd", "-D"), probe, "slurmdbd", ("munged", "database"))


def slurmctld() -> Daemon:
    """Slurm's controller."""
    return Daemon(
        "slurmctld", "", ("slurmctld", "-D"), ("scontrol", "ping"), "slurmctld", ("munged", "cluster")
    )


def slurmd(node: str, host: str) -> Daemon:
    """One compute node."""
    argv = ("slurmd", "-D", "-N", node)
    return Daemon(f"slurmd-{node}", host, argv, ("true",), f"slurmd-{node}", ("slurmctld",))


def sshd(host: str, port: int) -> Daemon:
    """One login node."""
    argv = ("/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/sshd_config", "-p", str(port))
    return Daemon(f"sshd-{host}", host, argv, port, f"sshd-{host}")


def moto(port: int) -> Daemon:
    """What stands in for AWS."""
    argv = _as_account(API_ACCOUNT, sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port))
    return Daemon("moto", "", argv, port, "moto")


def api(port: int, environment: Mapping[str, str]) -> Daemon:
    """Our own service."""
    serve = (sys.executable, "-m", "api", "serve", "--host", "127.0.0.1", "--port", str(port))
    argv = _as_account(API_ACCOUNT, "env", f"--chdir={API_FOLDER}", *serve, **environment)
    return Daemon("api", "", argv, port, "api", ("slurmdbd", "bill"))


def api_command(moto_port: int, *words: str) -> tuple[str, ...]:
    """A command of the API service, to be run by its account."""
    settings = [f"{key}={value}" for key, value in api_environment(moto_port).items()]
    return ("env", *settings, sys.executable, "-m", "api", *words)


def api_environment(moto_port: int) -> dict[str, str]:
    """Settings of the API service, for the daemon and for its commands."""
    return {
        "HOME": API_FOLDER,
        "PATH": f"{os.path.dirname(sys.executable)}:{SYSTEM_PATH}",  # noqa: PTH120
        "NO_PROXY": "127.0.0.1",
        "HPCTOOLS_API_SITE": "/etc/slurm/site.yaml",
        "HPCTOOLS_API_DATABASE_URL": f"sqlite:///{API_FOLDER}/budget.db",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{moto_port}",
        "AWS_ACCESS_KEY_ID": "sandbox",
        "AWS_SECRET_ACCESS_KEY": "sandbox",
        "AWS_DEFAULT_REGION": "us-east-1",
    }

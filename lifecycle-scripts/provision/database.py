"""The database behind slurmdbd: MariaDB on this node, or somebody's server elsewhere."""

from __future__ import annotations

import shutil
import socket
import time

from provision.failures import Failure
from provision.files import on_node, write_whole
from provision.processes import call, must

SETTINGS = "/etc/mysql/mariadb.conf.d/90-hpctools.cnf"
# What slurmdbd asks for (its accounting page): long rollups hold locks, and large clusters long rows.
SETTINGS_TEXT = """\
# Made by hpctools' lifecycle scripts.
[mysqld]
innodb_lock_wait_timeout=900
max_allowed_packet=64M
"""
INSTALL_SECONDS = 600.0
START_SECONDS = 60.0
CONNECT_SECONDS = 10.0


def wait_for(host: str, port: int, seconds: float = 60.0) -> None:
    """Wait until a database server accepts connections.

    Raises:
        Failure: it does not within so many seconds.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
        except OSError as error:
            if time.monotonic() > until:
                hint = "do the security groups let the controller reach it?"
                raise Failure(f"the database {host}:{port} cannot be reached: {error}; {hint}") from None
            time.sleep(1)
        else:
            return


def serve_locally(name: str, user: str) -> None:
    """Have MariaDB run here with slurmdbd's database and its user, who is known by the Unix socket.

    Raises:
        Failure: it cannot be installed, started or told.
    """
    changed = write_whole(on_node(SETTINGS), SETTINGS_TEXT, 0o644)
    _install()
    must(["systemctl", "enable", "mariadb"], limit=30)
    must(["systemctl", "restart" if changed else "start", "mariadb"], limit=START_SECONDS)
    _wait_for_socket()
    # No password: the socket tells who asks, so there is none that could leak.
    tell(
        f"CREATE DATABASE IF NOT EXISTS {name};\n"
        f"CREATE USER IF NOT EXISTS '{user}'@'localhost' IDENTIFIED VIA unix_socket;\n"
        f"GRANT ALL ON {name}.* TO '{user}'@'localhost';\n"
    )
    print(f"MariaDB serves {name} to {user} here")


def tell(sql: str) -> str:
    """Let the local server carry out SQL, as root through its socket.

    Raises:
        Failure: it refuses.
    """
    return must(["mysql", "--batch", "--skip-column-names"], limit=60, stdin=sql)


def _install() -> None:
    if shutil.which("mariadbd") or shutil.which("mysqld"):
        return
    print("installing mariadb-server")
    # Other installations may hold the lock while a node starts.
    waiting = ["-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=5"]
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    must(["apt-get", *waiting, "update", "-qq"], limit=INSTALL_SECONDS, env=env)
    must(["apt-get", *waiting, "install", "-y", "-qq", "mariadb-server"], limit=INSTALL_SECONDS, env=env)


def _wait_for_socket() -> None:
    until = time.monotonic() + START_SECONDS
    while (done := call(["mysql", "--batch", "-e", "SELECT 1"], limit=10)).code != 0:
        if time.monotonic() > until:
            raise Failure(f"MariaDB does not answer: {done.last_words}; see `journalctl -u mariadb`")
        time.sleep(0.3)

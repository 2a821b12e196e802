"""A PostgreSQL server of the bench's own, on a Unix socket only, with its usual care for the disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine

from hpctools.slurm.run import run

# Seconds that a busy machine may take for what takes two on a quiet one.
_SECONDS = 300


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        socket: the folder of its socket.
    """

    socket: Path

    def database(self, name: str) -> str:
        """Make an empty database and return its URL."""
        engine = create_engine(f"postgresql+psycopg://postgres@/postgres?host={self.socket}")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        engine.dispose()
        return f"postgresql://postgres@/{name}?host={self.socket}"


@contextmanager
def postgres() -> Iterator[Server]:
    """Start a server and end it; as `postgres` where we are root, as which it refuses to run."""
    control = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))[-1]
    folder = Path(tempfile.mkdtemp(prefix="hpctools-pg-"))
    words = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if words:
        shutil.chown(folder, "postgres", "postgres")
    data = folder / "data"
    command = [*words, str(control), "-D", str(data)]
    try:
        init = [*command, "initdb", "-o", "-U postgres -A trust -E UTF8 --no-locale"]
        run(init, timeout=_SECONDS, cwd=folder)
        options = f"-k {folder} -c listen_addresses=''"
        run(
            [*command, "-l", str(folder / "log"), "-o", options, "-t", f"{_SECONDS}", "start"],
            timeout=2 * _SECONDS,
            cwd=folder,
        )
        yield Server(folder)
    finally:
        run([*command, "-m", "immediate", "stop"], timeout=2 * _SECONDS, check=False, cwd=folder)
        shutil.rmtree(folder)

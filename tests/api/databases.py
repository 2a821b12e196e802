"""Databases for tests: the same ones run on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine

from api.db.engine import connect
from api.db.migrate import upgrade
from hpctools.slurm.run import run


@dataclass(frozen=True)
class Postgres:
    """A private PostgreSQL server that listens on a Unix socket only."""

    socket: Path
    control: tuple[str, ...]

    def start(self) -> None:
        log, options = self.socket.parent / "log", f"-k {self.socket} -c listen_addresses='' {_FAST}"
        run([*self.control, "-l", str(log), "-o", options, "-w", "start"], timeout=60, cwd=self.socket.parent)

    def stop(self) -> None:
        """At once, as if it had crashed; whatever it was at."""
        run([*self.control, "-m", "immediate", "stop"], timeout=60, check=False, cwd=self.socket.parent)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.socket}"

    def execute(self, statement: str) -> None:
        engine = create_engine(self.url().replace("postgresql:", "postgresql+psycopg:"))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(statement)
        engine.dispose()


_FAST = "-c fsync=off -c autovacuum=off -c max_wal_size=256MB"


_MEMORY = Path("/dev/shm")
_ROOM = 2 << 30


def _memory() -> Path | None:
    """A file system in memory with room for a server: on a disk whole tests take half as long again."""
    return _MEMORY if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM else None


def _binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.fail("PostgreSQL is missing: apt-get install --no-install-recommends postgresql")
    return found[-1].parent


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with _private_postgres() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """For a test that stops it."""
    with _private_postgres() as server:
        yield server


@contextmanager
def _private_postgres() -> Iterator[Postgres]:
    """PostgreSQL refuses to run as root: it runs as `postgres` then."""
    binaries = _binaries()
    folder = Path(tempfile.mkdtemp(prefix="hpctools-pg-", dir=_memory()))
    as_postgres = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if as_postgres:
        shutil.chown(folder, "postgres", "postgres")
    data, socket = folder / "data", folder / "run"
    server = Postgres(socket, (*as_postgres, str(binaries / "pg_ctl"), "-D", str(data)))
    try:
        initdb = [
            str(binaries / "initdb"),
            "-D",
            str(data),
            "-U",
            "postgres",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
        ]
        run([*as_postgres, *initdb, "--no-locale"], timeout=60, cwd=folder)
        run([*as_postgres, "mkdir", str(socket)], timeout=10, cwd=folder)
        server.start()
        yield server
    finally:
        try:
            server.stop()
        finally:
            shutil.rmtree(folder)


def with_tables(url: str) -> str:
    """Make the tables of a database."""
    engine = connect(url)
    upgrade(engine)
    engine.dispose()
    return url


@pytest.fixture(scope="session")
def sqlite_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite database with its tables, to copy: to make them takes a quarter of a second each time."""
    path = tmp_path_factory.mktemp("tables") / "store.sqlite"
    with_tables(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgresql_tables(postgres: Postgres) -> str:
    """The name of a database with its tables, as a template for others."""
    postgres.execute("CREATE DATABASE tables")
    with_tables(postgres.url("tables"))
    return "tables"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of the test's own: with its tables where it has an `engine`, too, else empty."""
    has_tables = "engine" in request.fixturenames
    if request.param == "sqlite":
        store = tmp_path / "store.sqlite"
        if has_tables:
            shutil.copyfile(request.getfixturevalue("sqlite_tables"), store)
        yield f"sqlite:///{store}"
        return
    server: Postgres = request.getfixturevalue("postgres")
    template = f" TEMPLATE {request.getfixturevalue('postgresql_tables')}" if has_tables else ""
    name = f"t{uuid4().hex}"
    server.execute(f"CREATE DATABASE {name}{template}")
    yield server.url(name)
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database with its tables."""
    engine = connect(database_url)
    yield engine
    engine.dispose()

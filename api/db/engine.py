"""Connections: SQLite by default, PostgreSQL by URL; and the one lock that writers take."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DatabaseError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from api.db.exact import ExactSum
from api.db.in_loop import here
from api.db.server import for_threads
from hpctools.errors import UnreachableError, UsageError

_BUSY_MS = 60_000
_PAUSE_SECONDS = 0.01

# Any constant will do; it names our lock among the advisory locks of the database.
_LOCK = 0x68706374


def connect(url: str) -> Engine:
    """An engine for `sqlite:///FILE` or `postgresql://...`; connects lazily.

    A SQLite file is created readable by its owner only: it holds what departments spend.

    Raises:
        UsageError: the URL is neither.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise UsageError(
            "the database URL cannot be read", "expected sqlite:///FILE or postgresql://..."
        ) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _sqlite(parsed)
    if backend == "postgresql":
        return _postgresql(parsed)
    raise UsageError(f"{backend} is not a supported database", "use sqlite:///FILE or postgresql://...")


class StoreError(UnreachableError):
    """The database cannot be used; what was at work on it is not stored."""


class DamagedError(StoreError):
    """The database is there, and what is in it cannot be read."""

    exit_code = 1


_NO_DATABASE = "file is not a database"
_DAMAGED = ("malformed", _NO_DATABASE)
# PostgreSQL's data_corrupted and index_corrupted.
_DAMAGED_STATES = ("XX001", "XX002")
_MEND = (
    "stop the service, keep the database as it is (an SQLite file is moved away with its -wal and -shm), and "
    "restore the last backup that verifies (docs/budget-operation.md, Backup and restore)"
)


def is_damage(error: BaseException) -> bool:
    """Whether a driver's error says that the database is damaged, not that it is away."""
    if isinstance(error, sqlite3.Error):
        return any(word in str(error) for word in _DAMAGED)
    return getattr(error, "sqlstate", None) in _DAMAGED_STATES


def damaged(reason: str, name: str = "that HPCTOOLS_API_DATABASE_URL names") -> DamagedError:
    """What to say of a live database that is damaged: another backup of it would be no better."""
    if _NO_DATABASE in reason:
        first = "check that HPCTOOLS_API_DATABASE_URL names the right file; if it does, "
        return DamagedError(f"the database {name} is damaged, or none: {reason}", first + _MEND)
    return DamagedError(f"the database {name} is damaged: {reason}", _MEND)


@contextmanager
def writing(engine: Engine, wait_ms: int | None = None) -> Iterator[Session]:
    """A transaction of the only writer: others wait for it, all of it is stored or nothing.

    Args:
        wait_ms: how long another writer is waited for, in milliseconds, from 1 on; a minute when None.

    Raises:
        UnreachableError: the database does not answer, or another writer did not end in time.
    """
    writer = here(engine).execution_options(writes=True, wait_ms=wait_ms)
    with reachable(), writer.connect() as connection, connection.begin():
        lock(connection, wait_ms)
        with Session(bind=connection) as session:
            yield session
            session.flush()


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """A session that sees one state of the database.

    Raises:
        UnreachableError: the database does not answer.
    """
    engine = here(engine)
    if engine.dialect.name == "postgresql":
        # By default each query would see what others have stored since the one before.
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with reachable(), Session(engine) as session:
        yield session


def lock(connection: Connection, wait_ms: int | None = None) -> None:
    """Wait until no other writer is at work, as `writing` does; held until the transaction ends.

    SQLite has the lock since BEGIN IMMEDIATE.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {wait_ms or _BUSY_MS}")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")


@contextmanager
def reachable() -> Iterator[None]:
    """Failures of the database as ours; an IntegrityError passes, it is about what was to be stored.

    Raises:
        DamagedError: the database is damaged.
        StoreError: it does not answer, or is none, or not ours.
    """
    try:
        yield
    except IntegrityError:
        raise
    except (DatabaseError, PoolTimeout) as error:
        driver = getattr(error, "orig", error)
        reason = str(driver).strip().splitlines()[0]
        if is_damage(driver):
            raise damaged(reason) from error
        raise StoreError(
            f"the database cannot be used: {reason}", "check HPCTOOLS_API_DATABASE_URL and that it runs"
        ) from error


def _postgresql(url: URL) -> Engine:
    return for_threads(url)


def _sqlite(url: URL) -> Engine:
    if url.database and url.database != ":memory:":
        _create_private(Path(url.database))
    engine = create_engine(url, connect_args={"timeout": _BUSY_MS / 1000})
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _create_private(path: Path) -> None:
    try:
        if not path.exists():
            path.touch(mode=0o600)
    except OSError as error:
        raise UsageError(
            f"cannot create the database {path}: {error.strerror}",
            "create its folder, or set HPCTOOLS_API_DATABASE_URL",
        ) from None


def _prepare(connection: Any, _: Any) -> None:
    # We begin transactions ourselves (_begin): the driver would not begin one for a SELECT.
    connection.isolation_level = None
    _write_ahead(connection)
    for pragma in ("synchronous=FULL", "foreign_keys=ON", f"busy_timeout={_BUSY_MS}"):
        connection.execute(f"PRAGMA {pragma}").close()
    connection.create_aggregate("exact_sum", 1, ExactSum)


def _write_ahead(connection: Any) -> None:
    """Use a write-ahead log. The first ones to open a file change its mode, and that waits for nobody."""
    limit = time.monotonic() + _BUSY_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > limit:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    if options.get("looks", False):
        return
    if not options.get("writes", False):
        connection.exec_driver_sql("BEGIN")
    elif wait_ms := options.get("wait_ms"):
        _begin_within(connection, wait_ms)
    else:
        # A writer takes the lock at once: upgrading a read lock later can fail without a wait.
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _begin_within(connection: Connection, wait_ms: int) -> None:
    """Begin as a writer who does not wait for long; who has the connection next waits as always."""
    connection.exec_driver_sql(f"PRAGMA busy_timeout={wait_ms}").close()
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout={_BUSY_MS}").close()

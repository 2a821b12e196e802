"""A lock that one of several replicas holds for as long as it lives; when it dies, the lock is free."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from api.db.engine import reachable
from hpctools.errors import UnreachableError

# Another than the writers' lock: this one is held for minutes, while AWS and slurmdbd are asked.
_KEYS = {"reconcile": 0x68706375, "enforce": 0x68706376, "watch": 0x68706377}

Work = Literal["reconcile", "enforce", "watch"]


@contextmanager
def alone(engine: Engine, work: Work = "reconcile") -> Iterator[bool]:
    """Hold the lock for a block of code, if nobody has it; tells whether it is held.

    In PostgreSQL it is an advisory lock of a connection of its own. SQLite's only lock would keep every
    writer waiting: there it is a lock on a file beside the database, where all replicas are on one machine.

    Args:
        work: what is done alone; other work is not kept from being done at the same time.

    Raises:
        UnreachableError: the database does not answer.
    """
    if engine.dialect.name == "postgresql":
        with _advisory(engine, _KEYS[work]) as held:
            yield held
    elif engine.url.database and engine.url.database != ":memory:":
        suffix = ".lock" if work == "reconcile" else f".{work}.lock"
        with _file(Path(f"{engine.url.database}{suffix}")) as held:
            yield held
    else:
        yield True


@contextmanager
def _advisory(engine: Engine, key: int) -> Iterator[bool]:
    with reachable():
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    held = False
    try:
        with reachable():
            held = bool(connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({key})").scalar())
        yield held
    finally:
        # The connection is closed and not given back to the pool: the lock goes with it, whatever happened.
        # But PostgreSQL only notices that some time after: who asks next would find the lock taken.
        with suppress(DBAPIError):
            connection.exec_driver_sql(f"SELECT pg_advisory_unlock({key}) WHERE {held}")
        connection.invalidate()
        connection.close()


@contextmanager
def _file(path: Path) -> Iterator[bool]:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UnreachableError(
            f"cannot open the lock {path}: {error.strerror}",
            "the service needs to write to its database's folder",
        ) from None
    try:
        yield _taken(descriptor)
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

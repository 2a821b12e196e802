"""Engines for a PostgreSQL server: of threads, and of an event loop."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

_CONNECT_SECONDS = 10
_IN_LOOP = 8
_RESTED_SECONDS = 1.0
_SINCE = "unused since"


def for_threads(url: URL) -> Engine:
    """An engine for any thread; connects lazily."""
    return create_engine(_with_limit(url), pool_pre_ping=True)


def asked_in_loop(url: URL, isolation: IsolationLevel | None = None) -> AsyncEngine:
    """An engine for the event loop that runs; connects lazily."""
    given = {"isolation_level": isolation, "skip_autocommit_rollback": True} if isolation else {}
    engine = create_async_engine(_with_limit(url), pool_size=_IN_LOOP, max_overflow=0, **given)
    event.listen(engine.sync_engine, "checkin", _rest)
    event.listen(engine.sync_engine, "checkout", partial(_ask_if_rested, engine.sync_engine))
    return engine


def _rest(_: object, entry: ConnectionPoolEntry) -> None:
    entry.info[_SINCE] = time.monotonic()


def _ask_if_rested(engine: Engine, connection: Any, entry: ConnectionPoolEntry, _: object) -> None:
    """A connection that was not used for a while may have no server any more, and is asked.

    To ask each time takes as long as the question that it is wanted for.

    Raises:
        InvalidatePoolError: nobody answers on it; SQLAlchemy opens others.
    """
    if time.monotonic() - entry.info.get(_SINCE, time.monotonic()) < _RESTED_SECONDS:
        return
    try:
        engine.dialect.do_ping(connection)
    except engine.dialect.loaded_dbapi.Error:
        raise InvalidatePoolError from None


def _with_limit(url: URL) -> URL:
    if "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": str(_CONNECT_SECONDS)})
    return url.set(drivername="postgresql+psycopg")

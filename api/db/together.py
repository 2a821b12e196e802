"""Several questions on one way to a PostgreSQL server and back, from the event loop.

Each way takes as long as the question itself, and others wait meanwhile for whom has the turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, cast

from psycopg import AsyncConnection, Error
from psycopg.rows import namedtuple_row
from sqlalchemy import ClauseElement, Connection, Dialect, Executable

from api.db.engine import StoreError
from api.db.in_loop import awaited

Question: TypeAlias = "tuple[Executable, Mapping[str, Any]]"
"""A statement, one and the same object each time that it is asked, and its parameters by name."""
Plain: TypeAlias = "tuple[str, Mapping[str, Any]]"
"""The same in words of SQL, with `%(name)s` for each parameter."""
_Asked: TypeAlias = "tuple[bytes, Mapping[str, Any]]"


def told_together(connection: Connection, questions: Sequence[Question | Plain]) -> list[list[Any]]:
    """What each of them finds; a list of no rows for what finds none.

    Args:
        connection: one that begins no transactions.

    Raises:
        StoreError: one of them failed, or the server does not answer. After this and any other exception the
            connection is good for nothing but `invalidate`.
    """
    driver = cast(AsyncConnection[Any], connection.connection.driver_connection)
    asked = [_words(connection.dialect, *each) for each in questions]
    try:
        return awaited(_told(driver, asked))
    except Error as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise StoreError(
            f"the database cannot be used: {reason}", "check HPCTOOLS_API_DATABASE_URL and that it runs"
        ) from error


async def _told(driver: AsyncConnection[Any], asked: Sequence[_Asked]) -> list[list[Any]]:
    cursors = [driver.cursor(row_factory=namedtuple_row) for _ in asked]
    async with driver.pipeline():
        for cursor, (words, parameters) in zip(cursors, asked, strict=True):
            await cursor.execute(words, parameters or None)
    return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]


def _words(dialect: Dialect, statement: Executable | str, parameters: Mapping[str, Any]) -> _Asked:
    if isinstance(statement, str):
        return statement.encode(), parameters
    return _compiled(dialect, statement, tuple(parameters)), parameters


@lru_cache(maxsize=100)
def _compiled(dialect: Dialect, statement: Executable, names: tuple[str, ...]) -> bytes:
    """A statement as the driver takes it, with a placeholder for each parameter.

    Raises:
        ValueError: it has other parameters, or values of its own.
    """
    compiled = cast(ClauseElement, statement).compile(dialect=dialect, column_keys=list(names))
    if set(compiled.params) != set(names):
        raise ValueError(f"{compiled} needs {sorted(compiled.params)}, not {sorted(names)}")
    return str(compiled).encode()

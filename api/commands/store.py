"""The database that a command works on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from api.db.engine import connect
from api.db.migrate import HEAD, current, upgrade
from api.settings import Settings
from hpctools.errors import UsageError


@contextmanager
def open_store(settings: Settings, *, migrate: bool = True) -> Iterator[Engine]:
    """The database with its tables up to date; closed at the end.

    Args:
        migrate: whether they may be brought up to date, if the settings allow it: no for what only looks.

    Raises:
        UsageError: they are not, and must not be changed.
        UnreachableError: the database does not answer.
    """
    engine = connect(settings.database_url)
    try:
        _prepare(engine, migrate=migrate and settings.migrate)
        yield engine
    finally:
        engine.dispose()


def _prepare(engine: Engine, *, migrate: bool) -> None:
    if migrate:
        upgrade(engine)
    elif (revision := current(engine)) != HEAD:
        raise UsageError(
            f"the database's tables are at {revision or 'nothing'}, not at {HEAD}",
            "use the release that made them, or run `hpctools-api migrate`",
        )

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
def open_store(settings: Settings) -> Iterator[Engine]:
    """The database with its tables up to date; closed at the end.

    Raises:
        UsageError: they are not, and the settings forbid to change that.
        UnreachableError: the database does not answer.
    """
    engine = connect(settings.database_url)
    try:
        _prepare(engine, settings)
        yield engine
    finally:
        engine.dispose()


def _prepare(engine: Engine, settings: Settings) -> None:
    if settings.migrate:
        upgrade(engine)
    elif (revision := current(engine)) != HEAD:
        raise UsageError(
            f"the database's tables are at {revision or 'nothing'}, not at {HEAD}",
            "run `hpctools-api migrate`",
        )

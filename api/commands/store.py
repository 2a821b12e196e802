"""The database that a command works on."""

from __future__ import annotations

from sqlalchemy import Engine

from api.db.engine import connect
from api.db.migrate import HEAD, current, upgrade
from api.settings import Settings
from hpctools.errors import UsageError


def open_store(settings: Settings) -> Engine:
    """The database with its tables up to date.

    Raises:
        UsageError: they are not, and the settings forbid to change that.
        UnreachableError: the database does not answer.
    """
    engine = connect(settings.database_url)
    if settings.migrate:
        upgrade(engine)
    elif (revision := current(engine)) != HEAD:
        raise UsageError(
            f"the database's tables are at {revision or 'nothing'}, not at {HEAD}",
            "run `hpctools-api migrate`",
        )
    return engine

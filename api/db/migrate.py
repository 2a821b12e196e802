"""Bring a database's tables to a revision."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from api.db.engine import lock
from hpctools.errors import UnreachableError

HEAD = "v0001"

_SCRIPTS = Path(__file__).parent / "migrations"


def upgrade(engine: Engine) -> None:
    """Bring the tables up to date; does nothing when they are. Several at once wait for each other.

    Raises:
        UnreachableError: the database does not answer.
    """
    if current(engine) != HEAD:
        _run(engine, "upgrade", "head")


def downgrade(engine: Engine, revision: str = "base") -> None:
    """Go back to an older revision; `base` removes everything."""
    _run(engine, "downgrade", revision)


def current(engine: Engine) -> str | None:
    """The revision that the tables have; None for an empty database.

    Raises:
        UnreachableError: the database does not answer.
    """
    from alembic.runtime.migration import MigrationContext

    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    except OperationalError as error:
        raise UnreachableError(
            f"the database does not answer: {str(error.orig).strip().splitlines()[0]}",
            "check HPCTOOLS_API_DATABASE_URL and that it runs",
        ) from error


def _run(engine: Engine, direction: str, revision: str) -> None:
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        lock(connection)
        _alembic(connection, direction, revision)


def _alembic(connection: Connection, direction: str, revision: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    getattr(command, direction)(config, revision)

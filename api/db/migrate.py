"""Bring a database's tables to a revision."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine

from api.db.engine import lock, reachable
from hpctools.errors import BudgetError

HEAD = "v0014"

_SCRIPTS = Path(__file__).parent / "migrations"


def upgrade(engine: Engine) -> None:
    """Bring the tables up to date; does nothing when they are. Several at once wait for each other.

    Raises:
        UnreachableError: the database does not answer.
        BudgetError: its tables are of a release that we do not know.
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

    with reachable(), engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def _run(engine: Engine, direction: str, revision: str) -> None:
    from alembic.util import CommandError

    try:
        with reachable(), engine.connect().execution_options(writes=True) as connection, connection.begin():
            lock(connection)
            _alembic(connection, direction, revision)
    except CommandError as error:
        raise BudgetError(
            f"the database's tables are of another release ({error})", "use the release that made them"
        ) from None


def _alembic(connection: Connection, direction: str, revision: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    getattr(command, direction)(config, revision)

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect

from api.db.engine import connect
from api.db.migrate import _SCRIPTS, HEAD, current, downgrade, upgrade
from api.db.schema import Base
from hpctools.errors import UnreachableError, UsageError


def test_up_down_and_up_again(database_url: str) -> None:
    engine = connect(database_url)
    assert current(engine) is None
    upgrade(engine)
    assert current(engine) == HEAD
    assert set(inspect(engine).get_table_names()) == {*Base.metadata.tables, "alembic_version"}
    downgrade(engine)
    assert (current(engine), inspect(engine).get_table_names()) == (None, ["alembic_version"])
    upgrade(engine)
    upgrade(engine)
    assert current(engine) == HEAD
    engine.dispose()


def test_the_migrations_make_exactly_the_models(engine: Engine) -> None:
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_head_is_the_newest_script() -> None:
    assert ScriptDirectory(str(_SCRIPTS)).get_current_head() == HEAD


def test_several_that_migrate_at_once_wait_for_each_other(database_url: str) -> None:
    def start() -> str | None:
        engine = connect(database_url)
        upgrade(engine)
        revision = current(engine)
        engine.dispose()
        return revision

    with ThreadPoolExecutor(4) as pool:
        assert [future.result(60) for future in [pool.submit(start) for _ in range(4)]] == [HEAD] * 4


def test_a_database_that_is_away_is_an_error_with_a_remedy(tmp_path) -> None:  # type: ignore[no-untyped-def]
    engine = connect(f"postgresql://nobody@/none?host={tmp_path}")
    with pytest.raises(UnreachableError, match="check HPCTOOLS_API_DATABASE_URL"):
        upgrade(engine)


@pytest.mark.parametrize("url", ["", "mysql://x/y", "no-url", "sqlite:////nonexistent/folder/file"])
def test_what_cannot_be_a_database_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        connect(url)

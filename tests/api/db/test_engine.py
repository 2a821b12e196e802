from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, select, text

from api.db import engine as engines
from api.db.access_models import ApiToken
from api.db.engine import connect, reading, writing
from api.db.looks import looking, looks_together
from api.db.migrate import upgrade
from hpctools.errors import BudgetError, UnreachableError, UsageError


def token(name: str) -> ApiToken:
    return ApiToken(name=name, digest=name, account=None, created_at=1, expires_at=None, scopes="read")


def test_a_reader_sees_one_state_while_others_write(engine: Engine) -> None:
    with reading(engine) as session:
        assert session.scalars(select(ApiToken.name)).all() == []
        with writing(engine) as other:
            other.add(token("new"))
        assert session.scalars(select(ApiToken.name)).all() == []
    with reading(engine) as session:
        assert session.scalars(select(ApiToken.name)).all() == ["new"]


def test_a_writer_sees_what_the_one_before_stored(engine: Engine) -> None:
    for name in ("first", "second"):
        with writing(engine) as session:
            session.add(token(name))
            session.flush()
            assert name in session.scalars(select(ApiToken.name)).all()
    with writing(engine) as session:
        assert sorted(session.scalars(select(ApiToken.name))) == ["first", "second"]


def test_a_writer_does_not_wait_for_ever(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_BUSY_MS", 200)
    with writing(engine) as first:
        first.add(token("first"))
        first.flush()
        with opened(database_url) as second, pytest.raises(UnreachableError, match="lock"), writing(second):
            pass


def test_a_writer_may_wait_for_less_and_leaves_the_connection_as_it_was(
    engine: Engine, database_url: str
) -> None:
    with opened(database_url) as second:
        with writing(engine), pytest.raises(UnreachableError, match="lock"), writing(second, wait_ms=10):
            pass
        waits = "PRAGMA busy_timeout" if second.dialect.name == "sqlite" else "SHOW lock_timeout"
        with second.connect() as connection:
            assert connection.exec_driver_sql(waits).scalar() in (60_000, "0")
        with writing(second, wait_ms=10) as session:
            session.add(token("second"))
    with reading(engine) as session:
        assert session.scalars(select(ApiToken.name)).all() == ["second"]


def test_tables_of_a_newer_release_are_left_alone(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'v9999'"))
    with pytest.raises(BudgetError, match=r"of another release .*v9999"):
        upgrade(engine)


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    engine = connect(url)
    yield engine
    engine.dispose()


def test_a_file_that_is_no_database_is_named_as_such_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database\n" * 100)
    os.utime(path, (1, 1))
    with (
        opened(f"sqlite:///{path}") as engine,
        pytest.raises(UnreachableError, match="file is not a database"),
    ):
        upgrade(engine)
    assert path.stat().st_mtime == 1


def test_a_database_of_something_else_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with opened(f"sqlite:///{path}") as engine, engine.connect() as connection:
        connection.execute(text("CREATE TABLE bill_day (id INTEGER)"))
        connection.commit()
    with (
        opened(f"sqlite:///{path}") as engine,
        pytest.raises(UnreachableError, match="table bill_day already exists"),
    ):
        upgrade(engine)


@pytest.mark.parametrize("url", ["postgresql://u:secret@h:port/db", "", "somewhere"])
def test_urls_that_cannot_be_read_do_not_appear_in_the_message(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        connect(url)
    assert "secret" not in str(refused.value)


def test_options_that_the_database_does_not_know_are_named(tmp_path: Path) -> None:
    with (
        opened(f"postgresql://u:secret@/db?host={tmp_path}&bogus=1") as engine,
        pytest.raises(UnreachableError, match='invalid connection option "bogus"'),
    ):
        upgrade(engine)


def test_single_questions_see_what_is_stored_by_then_and_may_share_a_connection(engine: Engine) -> None:
    taken: list[object] = []
    event.listen(engine, "checkout", lambda *given: taken.append(given[0]))

    def names() -> list[str]:
        with looking(engine) as connection:
            return list(connection.scalars(select(ApiToken.name)))

    with looks_together():
        assert names() == []
        with writing(engine) as session:
            session.add(token("new"))
        assert names() == ["new"]
    assert len(taken) == 2
    assert (names(), names()) == (["new"], ["new"])
    assert len(taken) == 4
    # The connection was given back as it was: others have transactions again.
    with reading(engine) as session:
        assert session.scalars(select(ApiToken.name)).all() == ["new"]
        with writing(engine) as other:
            other.add(token("newer"))
        assert session.scalars(select(ApiToken.name)).all() == ["new"]


def test_a_single_question_to_a_database_that_is_away_says_so(tmp_path: Path) -> None:
    (tmp_path / "text.sqlite").write_text("not a database" * 100)
    url = f"sqlite:///{tmp_path}/text.sqlite"
    with opened(url) as engine, pytest.raises(UnreachableError), looking(engine) as connection:
        connection.scalar(select(ApiToken.name))


@pytest.mark.parametrize("way", [reading, writing, looking])
def test_a_server_that_is_away_is_told_as_that(way: Any, tmp_path: Path) -> None:
    engine = connect(f"postgresql://postgres@/none?host={tmp_path}")
    with pytest.raises(UnreachableError, match="the database cannot be used"), way(engine) as opened:
        opened.execute(text("SELECT 1"))
    engine.dispose()

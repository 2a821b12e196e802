from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text

from api.db.engine import connect
from api.db.migrate import HEAD, upgrade
from api.db.schema import Base
from api.services import tokens
from api.services.backup import _give_to_the_service, backup, restore
from hpctools.errors import BudgetError, HpctoolsError, UnreachableError, UsageError


@pytest.fixture
def another_url(database_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """An empty database of the same kind."""
    if database_url.startswith("sqlite"):
        yield f"sqlite:///{tmp_path}/another.sqlite"
        return
    server = request.getfixturevalue("postgres")
    name = f"t{uuid4().hex}"
    server.execute(f"CREATE DATABASE {name}")
    yield server.url(name)
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """An empty store in a file."""
    url = f"sqlite:///{tmp_path}/store.sqlite"
    engine = connect(url)
    upgrade(engine)
    engine.dispose()
    return url


def contents(url: str) -> dict[str, list[Any]]:
    engine = connect(url)
    with engine.connect() as connection:
        found = {
            name: sorted(map(repr, connection.execute(text(f"SELECT * FROM {name}")).all()))
            for name in Base.metadata.tables
        }
    engine.dispose()
    return found


def test_what_comes_back_is_what_was_there(
    engine: Engine, database_url: str, another_url: str, tmp_path: Path, reconcile_november: Callable[[], Any]
) -> None:
    reconcile_november()
    secret = tokens.create(engine, "head", "nlp", 100)
    file = tmp_path / "backup"
    backup(database_url, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = contents(database_url)
    tokens.create(engine, "later", "nlp", 100)
    assert restore(another_url, file) == HEAD
    assert contents(another_url) == before
    assert before["ledger_entry"]
    again = connect(another_url)
    assert tokens.verify(again, secret, 200) is not None
    # History stays history, and its numbers go on.
    tokens.create(again, "new", "cv", 100)
    with again.begin() as connection, pytest.raises(Exception, match="append-only"):
        connection.exec_driver_sql("DELETE FROM ledger_entry")
    again.dispose()
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith(".")} == set()


def test_nothing_is_overwritten(engine: Engine, database_url: str, another_url: str, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    backup(database_url, file)
    with pytest.raises(UsageError, match="is there already"):
        backup(database_url, file)
    with pytest.raises(UsageError, match="not empty"):
        restore(database_url, file)
    with pytest.raises(UsageError, match="there is no folder"):
        backup(database_url, tmp_path / "nowhere" / "backup")


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PGDM", b"SQLite format 3"])
def test_what_is_no_backup(another_url: str, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "backup"
    file.write_bytes(content)
    with pytest.raises(UsageError, match="is no backup of a"):
        restore(another_url, file)
    with pytest.raises(UsageError, match="cannot read"):
        restore(another_url, tmp_path / "nothing")


def test_a_damaged_backup_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite"
    engine = connect(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a TEXT)")
        connection.exec_driver_sql(f"INSERT INTO t VALUES ('{'x' * 60_000}')")
    engine.dispose()
    file = tmp_path / "backup"
    backup(url, file)
    data = bytearray(file.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    file.write_bytes(data)
    another = tmp_path / "another.sqlite"
    with pytest.raises(BudgetError, match="damaged"):
        restore(f"sqlite:///{another}", file)
    assert not another.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_brings_back_is_the_services(store_url: str, tmp_path: Path) -> None:
    """It was root's, 0600: the service could not open it."""
    file, folder = tmp_path / "backup", tmp_path / "state"
    backup(store_url, file)
    folder.mkdir()
    os.chown(folder, 4242, 4343)
    restore(f"sqlite:///{folder}/api.sqlite", file)
    assert [path.name for path in folder.iterdir()] == ["api.sqlite"]
    found = (folder / "api.sqlite").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (4242, 4343, 0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_root_gives_away_no_file_of_its_own_that_was_put_in_the_backups_place(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    """The folder is the service's, which may put a link to any file there."""
    folder, secret = tmp_path / "data", tmp_path / "secret"
    folder.mkdir()
    os.chown(folder, 4242, 4343)
    secret.touch(0o600)
    link(secret, folder / "part")
    with pytest.raises(UsageError, match="was replaced meanwhile"):
        _give_to_the_service(folder / "part")
    assert secret.stat().st_uid == 0


def damage(file: Path, first: int, last: int) -> None:
    """Overwrite some of a file's bytes."""
    data = bytearray(file.read_bytes())
    data[first:last] = b"\xff" * (last - first)
    file.write_bytes(data)


@pytest.mark.parametrize("place", [(0, 64), (4096, 8192), (8192, 40960)])
def test_a_damaged_database_is_told_apart_from_a_damaged_backup(
    store_url: str, tmp_path: Path, place: tuple[int, int]
) -> None:
    """It said to use another backup of what was to be backed up."""
    damage(tmp_path / "store.sqlite", *place)
    with pytest.raises(HpctoolsError) as caught:
        backup(store_url, tmp_path / "backup")
    _is_told(caught.value, tmp_path)


def test_a_database_whose_index_lacks_a_row_is_damaged(store_url: str, tmp_path: Path) -> None:
    """It can be read and copied; SQLite's own check finds it."""
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as connection:
        connection.executescript(
            "CREATE TABLE t (a INTEGER); CREATE INDEX i ON t (a); PRAGMA writable_schema=1"
        )
        index = connection.execute("SELECT * FROM sqlite_master WHERE name = 'i'").fetchone()
        connection.execute("DELETE FROM sqlite_master WHERE name = 'i'")
        connection.commit()
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as connection:
        connection.executescript("INSERT INTO t VALUES (1); PRAGMA writable_schema=1")
        connection.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", index)
        connection.commit()
    with pytest.raises(HpctoolsError) as caught:
        backup(store_url, tmp_path / "backup")
    _is_told(caught.value, tmp_path)


def _is_told(error: HpctoolsError, folder: Path) -> None:
    told = str(error)
    assert told.startswith(f"the database {folder}/store.sqlite is damaged")
    assert "stop the service, keep the database as it is" in told
    assert "use another backup" not in told
    assert (error.exit_code, "\n" in told) == (1, False)
    assert [path.name for path in folder.iterdir() if not path.name.startswith("store.sqlite")] == []


def begin_store(connection: sqlite3.Connection) -> None:
    """A store whose last changes are in a log beside it."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
    connection.execute(f"INSERT INTO alembic_version VALUES ('{HEAD}')")


def test_what_a_crash_left_beside_the_database_is_not_mixed_with_the_backup(tmp_path: Path) -> None:
    """The log of one that was killed and moved away without it is no part of what comes back."""
    store = tmp_path / "store.sqlite"
    with closing(sqlite3.connect(store)) as connection:
        begin_store(connection)
        connection.execute("CREATE TABLE t (a INTEGER)")
        connection.commit()
        backup(f"sqlite:///{store}", tmp_path / "backup")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.commit()
        killed = tmp_path / "killed"
        killed.mkdir()
        for name in ("store.sqlite", "store.sqlite-wal"):
            shutil.copyfile(tmp_path / name, killed / name)
    url = f"sqlite:///{killed}/store.sqlite"
    (killed / "store.sqlite").rename(tmp_path / "kept")
    with pytest.raises(UsageError, match=r"store\.sqlite-wal is left of another database"):
        restore(url, tmp_path / "backup")
    assert [path.name for path in killed.iterdir()] == ["store.sqlite-wal"]
    (killed / "store.sqlite-wal").rename(tmp_path / "kept-wal")
    assert restore(url, tmp_path / "backup") == HEAD
    with closing(sqlite3.connect(killed / "store.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)


@pytest.mark.parametrize("name", ["plain", "a#b", "a?b", "a%41"])
def test_a_backup_may_have_any_name_and_nothing_is_written_beside_it(
    store_url: str, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    backup(store_url, folder / name)
    assert restore(f"sqlite:///{tmp_path}/another.sqlite", folder / name) == HEAD
    assert [path.name for path in folder.iterdir()] == [name]


def test_a_database_may_have_any_name(store_url: str, tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").rename(tmp_path / "a#b")
    backup(f"sqlite:///{tmp_path}/a#b", tmp_path / "backup")
    assert restore(f"sqlite:///{tmp_path}/another.sqlite", tmp_path / "backup") == HEAD


def test_a_plain_copy_with_its_log_comes_back_with_it(tmp_path: Path) -> None:
    source = tmp_path / "copy"
    with closing(sqlite3.connect(source)) as connection:
        begin_store(connection)
        connection.commit()
        assert restore(f"sqlite:///{tmp_path}/another.sqlite", source) == HEAD


def test_a_file_system_without_hard_links_takes_a_backup(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    backup(store_url, tmp_path / "backup")
    with pytest.raises(UsageError, match="is there already"):
        backup(store_url, tmp_path / "backup")
    assert restore(f"sqlite:///{tmp_path}/another.sqlite", tmp_path / "backup") == HEAD
    assert not list(tmp_path.glob(".*"))


def test_folders_that_take_no_file_are_told(store_url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write /proc/budgets"):
        backup(store_url, Path("/proc/budgets"))
    backup(store_url, tmp_path / "backup")
    with pytest.raises(UsageError, match=f"there is no folder {tmp_path}/nowhere"):
        restore(f"sqlite:///{tmp_path}/nowhere/another.sqlite", tmp_path / "backup")


def test_another_programs_database_does_not_come_into_the_place(tmp_path: Path) -> None:
    other, target = tmp_path / "other.sqlite", tmp_path / "store.sqlite"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE t (a INTEGER)")
    with pytest.raises(BudgetError, match="holds no budget store"):
        restore(f"sqlite:///{target}", other)
    assert not target.exists()


def test_a_database_that_is_away(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="there is no database"):
        backup(f"sqlite:///{tmp_path}/none.sqlite", tmp_path / "backup")
    assert list(tmp_path.iterdir()) == []

"""The whole store into a file, and back: SQLite by its online backup, PostgreSQL by its own programs."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.engine import URL

from api.db.engine import connect, damaged, is_damage
from api.db.migrate import current
from hpctools.errors import BudgetError, UnreachableError, UsageError
from hpctools.remote.settling import put_in_place
from hpctools.slurm.run import run

_MAGIC = {b"SQLite format 3\x00": "sqlite", b"PGDMP": "postgresql"}
_TIMEOUT = 6 * 3600.0


def backup(database_url: str, target: Path) -> None:
    """Write a consistent copy of the store to a new file, mode 0600; the service may go on writing meanwhile.

    Args:
        target: appears when it is whole.

    Raises:
        UsageError: the file is there already, or it cannot be written.
        DamagedError: the database is damaged.
        UnreachableError: it does not answer.
    """
    url = make_url(database_url)
    if target.exists():
        raise UsageError(f"{target} is there already", "name a new file")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}", "make it, or name another file")
    part = _part_of(target)
    try:
        if url.get_backend_name() == "sqlite":
            _copy_sqlite(_sqlite_path(url), part)
        else:
            _postgresql("pg_dump", url, "--format=custom", f"--file={part}")
        put_in_place(part, target)
    except FileExistsError:
        raise UsageError(f"{target} is there already", "name a new file") from None
    except OSError as error:
        raise _unwritable(target, error) from None
    finally:
        part.unlink(missing_ok=True)


def _part_of(target: Path) -> Path:
    """A new file beside one that is to be, mode 0600."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise _unwritable(target, error) from None
    os.close(descriptor)
    return Path(name)


def _unwritable(target: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot write {target}: {error.strerror}", "name a file that you may write")


def restore(database_url: str, source: Path) -> str:
    """Bring a backup into an empty database; return the revision of its tables.

    Raises:
        UsageError: it is no file, no backup of this kind of database, or the database is not empty.
        BudgetError: the backup is damaged.
        UnreachableError: the database does not answer.
    """
    url = make_url(database_url)
    kind = url.get_backend_name()
    if _kind(source) != kind:
        raise UsageError(f"{source} is no backup of a {kind} database", "name a file that `backup` wrote")
    if kind == "sqlite":
        _restore_sqlite(source, _sqlite_path(url))
    else:
        _restore_postgresql(source, url, database_url)
    revision = _revision(database_url)
    if revision is None:
        raise _no_store(source)
    return revision


def _kind(source: Path) -> str | None:
    try:
        with source.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise UsageError(
            f"cannot read {source}: {error.strerror}", "name a file that `backup` wrote"
        ) from None
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def _sqlite_path(url: URL) -> Path:
    if not url.database or url.database == ":memory:":
        raise UsageError("a database in memory cannot be kept", "set HPCTOOLS_API_DATABASE_URL")
    return Path(url.database)


def _copy_sqlite(source: Path, target: Path) -> None:
    try:
        source.stat()
    except FileNotFoundError:
        raise UnreachableError(f"there is no database {source}", "check HPCTOOLS_API_DATABASE_URL") from None
    except OSError as error:
        raise UnreachableError(
            f"cannot read {source}: {error.strerror}", "run it as the service's user"
        ) from None
    try:
        with (
            closing(_opened(source, "mode=ro")) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
            wrong = _wrong_with(new)
    except sqlite3.Error as error:
        if is_damage(error):
            raise damaged(str(error), str(source)) from None
        raise UnreachableError(
            f"the database {source} cannot be copied: {error}", "see that nothing else holds or removes it"
        ) from None
    if wrong:
        raise damaged(wrong, str(source))


def _restore_sqlite(source: Path, target: Path) -> None:
    try:
        _demand_room(target)
    except OSError as error:
        raise UsageError(f"cannot use {target}: {error.strerror}", "run it as the service's user") from None
    part = _part_of(target)
    try:
        with closing(_opened(source, _how(source))) as old:
            _check(old, source)
            with closing(sqlite3.connect(part)) as new:
                old.backup(new)
                _demand_store(new, source)
        _give_to_the_service(part)
        part.replace(target)
    except sqlite3.Error as error:
        raise BudgetError(f"{source} is damaged: {error}", "use another backup") from None
    finally:
        part.unlink(missing_ok=True)


def _give_to_the_service(part: Path) -> None:
    """A file of root's is given to whose the folder is: the service runs as that account.

    Whose the folder is may put another file of root's in its place: only one that has no other name is given.

    Raises:
        UsageError: it is another file by now.
    """
    if os.geteuid() != 0:
        return
    folder, refusal = part.parent.stat(), UsageError(f"{part} was replaced meanwhile", "do it again")
    try:
        opened = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        raise refusal from None
    try:
        if os.fstat(opened).st_nlink != 1:
            raise refusal
        os.fchown(opened, folder.st_uid, folder.st_gid)
    finally:
        os.close(opened)


def _demand_room(target: Path) -> None:
    """Nothing may be where the database is to be."""
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}", "make it, or set HPCTOOLS_API_DATABASE_URL")
    if target.exists() and target.stat().st_size:
        raise UsageError(
            f"{target} is not empty", "stop the service and move the file away first, with its -wal and -shm"
        )
    _demand_nothing_left(target)


def _demand_nothing_left(target: Path) -> None:
    """What a crash left of another database would be taken for a part of the one that comes back."""
    for left in (Path(f"{target}-wal"), Path(f"{target}-journal")):
        if left.exists() and left.stat().st_size:
            raise UsageError(
                f"{left} is left of another database", "move it to where that is, under that one's name"
            )


def _how(source: Path) -> str:
    """A backup is whole and nobody writes to it: it may be on a disk that is read only.

    A plain copy of a database may have its log beside it, which counts.
    """
    logs = (Path(f"{source}-wal"), Path(f"{source}-journal"))
    return "mode=ro" if any(log.exists() and log.stat().st_size for log in logs) else "immutable=1"


def _opened(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)


def _check(connection: sqlite3.Connection, source: Path) -> None:
    if wrong := _wrong_with(connection):
        raise BudgetError(f"{source} is damaged: {wrong}", "use another backup")


def _wrong_with(connection: sqlite3.Connection) -> str:
    """What SQLite finds wrong first, in one line; empty when all is well."""
    found = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    return "" if found == "ok" else found.splitlines()[-1]


def _demand_store(connection: sqlite3.Connection, source: Path) -> None:
    tables = "SELECT count(*) FROM sqlite_master WHERE name = 'alembic_version'"
    if not connection.execute(tables).fetchone()[0]:
        raise _no_store(source)


def _no_store(source: Path) -> BudgetError:
    return BudgetError(f"{source} holds no budget store", "name a file that `backup` wrote")


def _restore_postgresql(source: Path, url: URL, database_url: str) -> None:
    if _revision(database_url) is not None:
        raise UsageError("the database is not empty", "make a new one with createdb and name it")
    _postgresql("pg_restore", url, "--no-owner", "--exit-on-error", "--single-transaction", str(source))


def _revision(database_url: str) -> str | None:
    engine = connect(database_url)
    try:
        return current(engine)
    finally:
        engine.dispose()


def _postgresql(program: str, url: URL, *arguments: str) -> None:
    """Run a program of PostgreSQL on the database. A password goes by the environment, never by argv."""
    environment = dict(os.environ)
    if isinstance(url.password, str):
        environment["PGPASSWORD"] = url.password
    named = url.set(password=None).set(drivername="postgresql").render_as_string(hide_password=False)
    run([program, *arguments, f"--dbname={named}"], timeout=_TIMEOUT, env=environment)

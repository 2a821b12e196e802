"""What was changed, when and by whom: one folder for each change, readable by root alone.

history/7/
    record.json     who, when, what came of it; the journal while it is under way
    plan.json       what it was to change
    site.yaml       the site file that it was made from
    before/ after/  the whole configuration files
    accounts-before.json accounts-after.json    slurmdbd's tree
    sacctmgr.dump   `sacctmgr dump` from before, for people
    room            keeps room for the last words of a change under way, should the disk fill meanwhile
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hpctools.conf import durable
from hpctools.conf.accounts import AccountTree
from hpctools.conf.apply.fileset import FileSet, StoredFile
from hpctools.conf.apply.record import Record, Side
from hpctools.conf.apply.writing import writing
from hpctools.errors import HpctoolsError

RECORD = "record.json"
SITE = "site.yaml"
FACTS = "facts.yaml"
PLAN = "plan.json"
DUMP = "sacctmgr.dump"
ROOM = "room"
_ROOM_BYTES = 16 * 1024
_NEW = "new-"


class History:
    """The changes that a state folder remembers.

    Args:
        state: the state folder; need not exist yet.
    """

    def __init__(self, state: Path) -> None:
        self.state = state
        self.folder = state / "history"

    @property
    def lock(self) -> Path:
        """The lock file of everybody who changes the cluster."""
        return self.state / "lock"

    def prepare(self) -> None:
        """Make the folders, for root alone.

        Raises:
            HpctoolsError: they cannot be made.
        """
        with writing(self.state):
            for folder in (self.state, self.folder):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.state.chmod(0o700)

    def numbers(self) -> list[int]:
        """Numbers of all changes, the oldest first."""
        try:
            return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdecimal())
        except FileNotFoundError:
            return []
        except PermissionError:
            raise HpctoolsError(f"{self.folder} may be read by root only", "run it as root") from None

    def records(self) -> list[Record]:
        """All changes, the oldest first."""
        return [self.record(number) for number in self.numbers()]

    def record(self, number: int) -> Record:
        """One change.

        Raises:
            HpctoolsError: there is none of that number, or it cannot be read.
        """
        path = self.folder / str(number) / RECORD
        try:
            return Record.from_json(path.read_text(encoding="utf-8"))
        except (ValueError, HpctoolsError) as error:
            raise HpctoolsError(f"{path}: {error}", _damaged(path.parent)) from None
        except FileNotFoundError:
            known = self.numbers()
            if number in known:
                raise HpctoolsError(f"{path} is missing", _damaged(path.parent)) from None
            there = f"there are {known[0]} to {known[-1]}" if known else "nothing has been applied yet"
            raise HpctoolsError(f"there is no change {number} in {self.folder}", there) from None

    def last(self) -> Record | None:
        """The newest change; None when there is none."""
        numbers = self.numbers()
        return self.record(numbers[-1]) if numbers else None

    def begin(self, record: Record, before: FileSet, after: FileSet, documents: Mapping[str, str]) -> Record:
        """Remember a change that begins, as a whole or not at all.

        Args:
            record: the change.
            before: the files in force.
            after: the files to be.
            documents: other files, by name.

        Raises:
            HpctoolsError: it cannot be written.
        """
        fresh = self.folder / f"{_NEW}{record.number}"
        with writing(self.state):
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(mode=0o700)
            try:
                for side, files in {"before": before, "after": after}.items():
                    _keep(fresh / side, files)
                for name, text in {RECORD: record.to_json(), **documents}.items():
                    durable.create(fresh / name, text.encode(), 0o600)
                if record.open:
                    room = max(_ROOM_BYTES, 4 * len(record.to_json()))  # `owed` may grow to what `steps` is
                    durable.create(fresh / ROOM, bytes(room), 0o600)
                durable.sync(fresh)
                fresh.rename(self.folder / str(record.number))
            except BaseException:
                shutil.rmtree(fresh, ignore_errors=True)
                raise
            durable.sync(self.folder)
        return record

    def update(self, record: Record) -> Record:
        """Remember how far a change has come.

        Raises:
            HpctoolsError: it cannot be written; what was remembered stays.
        """
        self.write(record.number, RECORD, record.to_json())
        return record

    def make_room(self, number: int) -> None:
        """Give free what was kept for the last words of a change, which are to be written now."""
        with suppress(OSError):
            (self.folder / str(number) / ROOM).unlink()

    def write(self, number: int, name: str, text: str) -> None:
        """Put a document beside a change's record.

        Raises:
            HpctoolsError: it cannot be written.
        """
        with writing(self.state):
            durable.replace(self.folder / str(number) / name, text)

    def files(self, number: int, side: Side) -> dict[str, StoredFile]:
        """One of a change's two file sets."""
        folder = self.folder / str(number) / side
        rows = json.loads((folder.with_name(f"{side}.json")).read_text(encoding="utf-8"))
        return {
            name: StoredFile(name, (folder / name).read_bytes(), row["mode"], (row["uid"], row["gid"]))
            for name, row in rows.items()
        }

    def document(self, number: int, name: str) -> str | None:
        """A document beside a change's record; None when it has none."""
        try:
            return (self.folder / str(number) / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def accounts(self, number: int, side: Side) -> AccountTree | None:
        """One of a change's two account trees; None when slurmdbd did not say it then."""
        text = self.document(number, accounts_name(side))
        return None if text is None else accounts_from(text)


def _damaged(folder: Path) -> str:
    return f"bring it back from a backup, or move {folder} away: the change before it then counts as the last"


def accounts_name(side: Side) -> str:
    """The name of the document with an account tree."""
    return f"accounts-{side}.json"


def accounts_text(tree: AccountTree) -> str:
    """An account tree as JSON."""
    from pydantic import TypeAdapter

    return TypeAdapter(AccountTree).dump_json(tree, indent=1).decode()


def accounts_from(text: str) -> AccountTree:
    """Read what `accounts_text` wrote."""
    from pydantic import TypeAdapter

    return TypeAdapter(AccountTree).validate_json(text)


def _keep(folder: Path, files: FileSet) -> None:
    folder.mkdir(mode=0o700)
    for name, file in files.items():
        durable.create(folder / name, file.content, 0o600)
    durable.sync(folder)
    rows = {
        name: {"mode": file.mode, "uid": file.owner[0], "gid": file.owner[1]} for name, file in files.items()
    }
    durable.create(folder.with_name(f"{folder.name}.json"), json.dumps(rows).encode(), 0o600)

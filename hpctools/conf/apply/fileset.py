"""A set of configuration files with their owners, as it stands in a folder or is to stand there."""

from __future__ import annotations

import difflib
import pwd
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpctools.conf.bundle import Bundle, File
from hpctools.errors import HpctoolsError

SECRET_MODE = 0o600
_SECRET = re.compile(rb"(?im)^(\s*(?:StoragePass|AccountingStoragePass|JobCompPass)\s*=).*$")


@dataclass(frozen=True)
class StoredFile:
    """One file.

    Attributes:
        name: in the configuration folder; files of a configuration stand in no folder below it.
        content: its bytes; may hold a password, so it is kept out of `repr`.
        mode: permission bits.
        owner: uid and gid.
        modified: when what it says was written, nanoseconds since 1970; None for a new one. Daemons that
            started since know it: a later generation that says the same must not look newer.
    """

    name: str
    content: bytes = field(repr=False)
    mode: int
    owner: tuple[int, int]
    modified: int | None = field(default=None, compare=False)

    @property
    def shown(self) -> str:
        """Its text for people: secrets are masked."""
        return _SECRET.sub(rb"\1********", self.content).decode(errors="replace")


FileSet = Mapping[str, StoredFile]
"""Files by name. A whole configuration: what has no entry does not exist."""


def read(folder: Path, names: Iterable[str]) -> dict[str, StoredFile]:
    """What a daemon would read in a folder under these names; links are followed.

    Raises:
        OSError: a file that is there cannot be read.
    """
    return {name: found for name in sorted(set(names)) if (found := _read(folder / name)) is not None}


def _read(path: Path) -> StoredFile | None:
    try:
        with path.open("rb") as stream:
            content = stream.read()
        status = path.stat()
    except FileNotFoundError:
        return None
    owner = (status.st_uid, status.st_gid)
    return StoredFile(path.name, content, status.st_mode & 0o7777, owner, status.st_mtime_ns)


def wanted(bundle: Bundle, present: FileSet, slurm_user: str) -> dict[str, StoredFile]:
    """The file set that a bundle stands for, beside what is there.

    A file keeps the owner and the mode that it has. One that only its owner may read belongs to SlurmUser,
    since slurmdbd refuses another owner and another mode than 0600 (slurmdbd.conf(5)).

    Raises:
        HpctoolsError: a file would not stand in the folder itself, or there is no such account.
    """
    return {file.path: _wanted(file, present.get(file.path), slurm_user) for file in bundle.files}


def _wanted(file: File, present: StoredFile | None, slurm_user: str) -> StoredFile:
    if "/" in file.path:
        raise HpctoolsError(f"{file.path} would not stand in the configuration folder itself")
    content = file.text.encode("utf-8", "surrogateescape")
    modified = present.modified if present is not None and present.content == content else None
    if file.mode == SECRET_MODE:
        return StoredFile(file.path, content, file.mode, _account(slurm_user), modified)
    mode, owner = (present.mode, present.owner) if present is not None else (file.mode, (0, 0))
    return StoredFile(file.path, content, mode, owner, modified)


def left(files: FileSet, present: FileSet, known: FileSet, names: Iterable[str]) -> dict[str, StoredFile]:
    """Files to be, of which some say in other words (comments, order) what the present ones say.

    Those of us stay as they are: slurmctld and slurmds compare hashes of slurm.conf with its comments. Those
    that somebody edited get our words, and look as old as they were, since daemons have read what they say.

    Args:
        present: the files there are.
        known: the files that the last change left in force.
        names: the files whose meaning stays.
    """
    same = {name: present[name] for name in names if name in present and name in files}
    return {
        **files,
        **{name: _left(files[name], there, known.get(name) == there) for name, there in same.items()},
    }


def _left(file: StoredFile, there: StoredFile, ours: bool) -> StoredFile:
    return replace(file, modified=there.modified, content=there.content if ours else file.content)


def _account(name: str) -> tuple[int, int]:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise HpctoolsError(
            f"there is no Unix account {name!r}, which slurmdbd.conf must belong to",
            "install Slurm's packages, or make the account (cluster.slurm_user in the site file)",
        ) from None
    return entry.pw_uid, entry.pw_gid


def differing(one: FileSet, other: FileSet) -> tuple[str, ...]:
    """Names of files whose content differs, or that only one side has, in order."""
    names = sorted(one.keys() | other.keys())
    return tuple(name for name in names if _content(one, name) != _content(other, name))


def _content(files: FileSet, name: str) -> bytes | None:
    return files[name].content if name in files else None


def diff(before: FileSet, after: FileSet, names: Iterable[str]) -> str:
    """A unified diff of these files, secrets masked."""
    return "".join(_diff(before.get(name), after.get(name), name) for name in names)


def _diff(before: StoredFile | None, after: StoredFile | None, name: str) -> str:
    old, new = (file.shown.splitlines(keepends=True) if file else [] for file in (before, after))
    labels = (f"a/{name}" if before else "/dev/null", f"b/{name}" if after else "/dev/null")
    lines = difflib.unified_diff(old, new, *labels)
    return "".join(
        text if text.endswith("\n") else f"{text}\n\\ No newline at end of file\n" for text in lines
    )

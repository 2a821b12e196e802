"""Files of a run's folder: read and replaced as a whole, or added to by the line."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from hpctools.errors import ElasticError

Record = TypeVar("Record")
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""What link(2) says on a file system without hard links, as exFAT, many of FUSE and SMB."""


class FolderFiles:
    """What `RunFolder` is made of; every method raises ElasticError when it cannot be done."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()  # a program may go into another folder

    def _object(self, name: str) -> dict[str, Any]:
        values = self._object_if_there(name)
        if values is None:
            raise ElasticError(
                f"{self.path} has no {name}, so it is not a run's folder", "hp-status lists your runs"
            )
        return values

    def _object_if_there(self, name: str) -> dict[str, Any] | None:
        text = self._text(name)
        if text is None:
            return None
        try:
            values = json.loads(text)
        except ValueError as error:
            raise ElasticError(f"{self.path / name} is damaged: {error}") from None
        if not isinstance(values, dict):
            raise ElasticError(f"{self.path / name} is damaged: it holds no JSON object")
        return values

    def _record(self, kind: type[Record], values: Mapping[str, Any], name: str) -> Record:
        """A file's values as a dataclass; keys that a later release added are ignored."""
        names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
        known = {name: values[name] for name in names if name in values}
        try:
            return kind(**known)
        except TypeError as error:
            raise ElasticError(f"{self.path / name} is damaged: {error}") from None

    def _lines(self, name: str) -> list[dict[str, Any]]:
        if self._is_endless(name):
            return []
        # A full disk can tear a line; the others are still true.
        text = self._text(name) or ""
        parsed = (_object_or_none(line) for line in text.splitlines())
        return [line for line in parsed if line is not None]

    def _is_endless(self, name: str) -> bool:
        """Whether it is led to /dev/full or /dev/zero."""
        try:
            return (self.path / name).is_char_device()
        except OSError as error:
            raise ElasticError(f"cannot read {self.path / name}: {error}") from None

    def _text(self, name: str) -> str | None:
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ElasticError(f"cannot read {self.path / name}: {error}") from None

    def _replace(self, name: str, values: Mapping[str, Any]) -> None:
        self._replace_text(name, json.dumps(values, indent=1) + "\n")

    def _replace_text(self, name: str, text: str) -> None:
        temporary, place = "", self.path / name
        try:
            handle, temporary = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                _give_to_owner(handle, Path(temporary))
                file.write(text)
            Path(temporary).replace(place)
        except OSError as error:
            if temporary:
                with contextlib.suppress(OSError):  # the storage is broken; its first error counts
                    Path(temporary).unlink(missing_ok=True)
            raise unwritable(place, error) from None

    def _append(self, name: str, *values: Mapping[str, Any]) -> None:
        lines = b"".join(json.dumps(each).encode() + b"\n" for each in values)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path / name, flags, 0o600)
            try:
                _give_to_owner(descriptor, self.path / name)
                _add(descriptor, lines)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise unwritable(self.path / name, error) from None


def _give_to_owner(descriptor: int, path: Path) -> None:
    """What root has just made in somebody's folder becomes theirs, whose programs read it and add to it.

    Who owns a folder chooses what lies there and where links lead: an empty file is given only, which has no
    other name and lies in that very folder.
    """
    if os.geteuid() != 0:
        return
    with contextlib.suppress(OSError):  # where root may not, as on NFS, it stays as it is
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            owner, made = os.fstat(folder), os.fstat(descriptor)
            is_ours = (made.st_uid, made.st_size, made.st_nlink) == (0, 0, 1) and stat.S_ISREG(made.st_mode)
            there = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
            if owner.st_uid != 0 and is_ours and os.path.samestat(there, made):
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
        finally:
            os.close(folder)


def _add(descriptor: int, lines: bytes) -> None:
    """All of them or none, in one write, so that those of hp-submit and of the coordinator do not mix."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        lines = b"\n" + lines  # what was torn is not to take ours with it
    if (written := os.write(descriptor, lines)) == len(lines):
        return
    end = os.lseek(descriptor, 0, os.SEEK_CUR)  # of what was written just now (open(2), O_APPEND)
    if os.fstat(descriptor).st_size == end:  # else somebody has added a line since
        os.ftruncate(descriptor, end - written)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _object_or_none(line: str) -> dict[str, Any] | None:
    try:
        values = json.loads(line)
    except ValueError:
        return None
    return values if isinstance(values, dict) else None


def unwritable(path: Path, error: OSError) -> ElasticError:
    """What to say when a file there could not be written."""
    if isinstance(error, FileExistsError):
        return ElasticError(f"{path} exists already", "choose another run id")
    return ElasticError(
        f"cannot write {path}: {error.strerror or error}",
        "free space or quota there, or set HPCTOOLS_RUNS to a folder that all nodes share",
    )


def unlinkable(path: Path, error: OSError) -> ElasticError:
    """What to say when a file could not be linked there, by which a run's coordinator is chosen."""
    if error.errno not in NO_LINKS:
        return unwritable(path, error)
    return ElasticError(
        f"cannot link {path}: {error.strerror or error}; its file system has no hard links",
        "set HPCTOOLS_RUNS to a folder on one that has them, as NFS, Lustre, GPFS and BeeGFS have",
    )

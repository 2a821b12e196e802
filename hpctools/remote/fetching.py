"""Results on their way to a laptop: resumed, checked, and never over anything that is there."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpctools.errors import RemoteError, UsageError
from hpctools.remote.names import inner_path, shown
from hpctools.remote.session import Session
from hpctools.remote.settling import put_in_place, take_back
from hpctools.remote.wire import CHUNK

PART = ".hpctools-part"


@dataclass
class Fetched:
    """What became of files, by their paths.

    Attributes:
        new, present, other: brought; there already; another file is in the place of it.
        changed: it changed while it was brought: its job may still write it.
    """

    new: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _File:
    path: str
    size: int
    runs: bool

    def target(self, folder: Path) -> Path:
        return folder / inner_path(self.path)


def fetch(session: Session, name: str, patterns: Sequence[str], folder: Path) -> Fetched:
    """Bring files of a submission into a folder.

    Raises:
        UnreachableError: it broke off every time; what has come stays for the next time.
        RemoteError: a file cannot be kept here.
        HpctoolsError: there is no such submission.
    """
    listed = session.again(lambda: _listed(session, name, patterns))
    done = Fetched()
    for file in listed:
        session.again(lambda file=file: _bring(session, name, file, folder, done))  # type: ignore[misc]
    return done


def _listed(session: Session, name: str, patterns: Sequence[str]) -> list[_File]:
    with session.exchange({"op": "files", "id": name, "patterns": list(patterns)}) as exchange:
        stated: Mapping[str, Any] = exchange.result()
    try:
        files = [_File(str(f["path"]), int(f["size"]), bool(f["runs"])) for f in stated["files"]]
        for file in files:
            inner_path(file.path)
    except (UsageError, KeyError, TypeError, ValueError):
        raise RemoteError(
            "the cluster names files that lead out of the run folder", "nothing was fetched"
        ) from None
    return files


def _bring(session: Session, name: str, file: _File, folder: Path, done: Fetched) -> None:
    target = file.target(folder)
    part = target.with_name(target.name + PART)
    _make_folder(folder, target.parent)
    _take_back(part, target, file)
    here = os.path.lexists(target)
    # Of what is here only the digest is asked for: from its end on.
    offset = file.size if here else min(_size(part), file.size)
    with session.exchange({"op": "fetch", "id": name, "files": [[file.path, offset, file.size]]}) as exchange:
        digest = ""
        while "result" not in (message := exchange.get()).fields:
            digest = message.get("digest") or digest
            if offset + len(message.data) > file.size:
                raise RemoteError(
                    f"the cluster sends more of {shown(file.path)} than it said", "fetch it again"
                )
            if message.data:
                _append(part, offset, message.data)
                offset += len(message.data)
    if here:
        (done.present if _is(target, digest) else done.other).append(file.path)
    elif file.size and not _is(part, digest):
        part.unlink(missing_ok=True)
        done.changed.append(file.path)
    else:
        _settle(part, target, file)
        done.new.append(file.path)


def _make_folder(top: Path, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RemoteError(
            f"cannot make {shown(str(folder))}: {error.strerror}", "name another place: --to"
        ) from None
    if top.resolve() not in (folder.resolve(), *folder.resolve().parents):
        raise RemoteError(f"{shown(str(folder))} is behind a link that leads elsewhere", "remove the link")


def _take_back(part: Path, target: Path, file: _File) -> None:
    with contextlib.suppress(OSError):  # it is told below as another file
        take_back(part, target, file.size)


def _append(part: Path, offset: int, data: bytes) -> None:
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.truncate(offset)
            file.seek(offset)
            file.write(data)
    except OSError as error:
        raise RemoteError(
            f"cannot write {shown(str(part))}: {error.strerror}", "free space here, and fetch again"
        ) from None


def _settle(part: Path, target: Path, file: _File) -> None:
    try:
        if not file.size:
            part.touch()
        if file.runs:
            mode = part.stat().st_mode
            part.chmod(mode | (mode & 0o444) >> 2)  # who may read it: the person's umask says
        put_in_place(part, target)
    except OSError as error:
        raise RemoteError(
            f"cannot make {shown(str(target))}: {error.strerror}", "nothing was overwritten"
        ) from None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is(path: Path, digest: str) -> bool:
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while data := file.read(CHUNK):
                found.update(data)
    except OSError:
        return False
    return found.hexdigest() == digest

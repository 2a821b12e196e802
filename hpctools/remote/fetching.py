"""Results on their way to a laptop: resumed, checked, and never over anything that is there."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpctools.errors import HpctoolsError, RemoteError, UnreachableError, UsageError
from hpctools.remote.meter import Meter
from hpctools.remote.names import inner_path, shown
from hpctools.remote.parts import Part, Unkept, refused
from hpctools.remote.patience import Patience, passes
from hpctools.remote.session import Exchange, Session
from hpctools.remote.settling import put_in_place, take_back
from hpctools.remote.wire import CHUNK, Message

PART = ".hpctools-part"
_LONGEST = 255
"""Bytes of a name that file systems take."""
_TOGETHER = 1000
_REQUEST_BYTES = 1 << 20
"""Characters of paths in one request: the cluster takes no line of over 8 MiB, and JSON may make six bytes of
one."""
_PAST = 1 << 20
"""Bytes that are sooner read past than asked for anew: each exchange starts a Python on the cluster."""
_SAME_TIME = 0.001
"""Seconds; file systems round times."""


@dataclass
class Fetched:
    """What became of files, by their paths.

    Attributes:
        new, present, other: brought; there already; another file is in the place of it.
        changed: it changed while it was brought: its job may still write it.
        gone: the cluster could not read it any more, or list that folder, or it cannot be kept here, and why;
            or another hp-fetch is at it.
    """

    new: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    gone: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Wanted:
    """What is to be fetched.

    Attributes:
        name: the submission's id, or its job's.
        patterns: which of its files; all when there are none.
        folder: where to.
    """

    name: str
    patterns: tuple[str, ...]
    folder: Path


@dataclass(frozen=True)
class _File:
    path: str
    size: int
    runs: bool
    modified: float

    def target(self, folder: Path) -> Path:
        return folder / inner_path(self.path)

    def part(self, folder: Path) -> Path:
        """Where it lies while it comes: beside its place, and found again by the next attempt."""
        target = self.target(folder)
        name = os.fsencode(target.name)
        short = target.name if len(name + PART.encode()) <= _LONGEST else hashlib.sha256(name).hexdigest()
        return target.with_name(short + PART)


@dataclass(frozen=True)
class _Asked:
    """A file of a request, from where on, and whether it is here."""

    file: _File
    offset: int
    here: bool


def fetch(wanted: Wanted, session: Session, done: Fetched, meter: Meter) -> None:
    """Bring files of a submission into a folder.

    Args:
        done: what became of them; as far as it came, when something is raised.
        meter: shows how far it is.

    Raises:
        UnreachableError, TurnedAway, NoKeyTaken: it broke off, and was waited for in vain; what has come
            stays for the next time.
        RemoteError: a file cannot be kept here.
        HpctoolsError: there is no such submission.
    """
    listed = session.again(lambda: _listed(session, wanted, done))
    way = _Way(session, wanted, done, meter, Patience(session))
    way.left.extend(file for file in listed if not way.known(file))
    try:
        while way.left:
            way.go_on()
    finally:
        meter.clear()


def _listed(session: Session, wanted: Wanted, done: Fetched) -> list[_File]:
    request = {"op": "files", "id": wanted.name, "patterns": list(wanted.patterns), "pieces": True}
    found: list[_File] = []
    with session.exchange(request) as exchange:
        over = False
        while not over:
            message = exchange.get()
            over = "result" in message.fields  # an older release has all of it there
            stated = message["result"] if over else message.fields
            found += _read_list(stated)
            missed = stated.get("missed")  # folders; of older releases nobody knows
            if isinstance(missed, Mapping):
                done.gone.update((str(path), shown(str(why))) for path, why in missed.items())
    return found


def _read_list(stated: Mapping[str, Any]) -> list[_File]:
    try:
        return [_read(each) for each in stated["files"]]
    except (UsageError, KeyError, TypeError, ValueError):
        raise RemoteError(
            "the cluster names files that lead out of the run folder", "nothing was fetched"
        ) from None


def _read(stated: Mapping[str, Any]) -> _File:
    path, modified = str(stated["path"]), float(stated.get("modified", 0))
    inner_path(path)
    return _File(path, int(stated["size"]), bool(stated["runs"]), modified if math.isfinite(modified) else 0)


@dataclass
class _Way:
    """Files on their way here.

    Attributes:
        patience: with a line that broke.
        left: what is still to come.
        progress: grows with all that comes.
    """

    session: Session
    wanted: Wanted
    done: Fetched
    meter: Meter
    patience: Patience
    left: deque[_File] = field(default_factory=deque)
    progress: int = 0

    @property
    def folder(self) -> Path:
        """Where to."""
        return self.wanted.folder

    def known(self, file: _File) -> bool:
        """Whether a look at what is here says all, so that the cluster need not read its own."""
        target = file.target(self.folder)
        with contextlib.suppress(OSError):  # it is told later as another file
            take_back(file.part(self.folder), target, file.size)
        try:
            found = target.stat()
        except OSError:
            return False
        if found.st_size != file.size:
            self.done.other.append(file.path)
        elif stat.S_ISREG(found.st_mode) and abs(found.st_mtime - file.modified) < _SAME_TIME:
            self.done.present.append(file.path)
        else:
            return False
        return True

    def go_on(self) -> None:
        """Bring what is left; returns after all attempts that one request has, and a wait for the next."""
        before = self.progress
        try:
            self.session.again(self._attempt)
        except HpctoolsError as error:  # the list has come, so the cluster was there
            if self.progress != before:
                self.patience.renew()
            if not (passes(error) and self.patience.wait(error)):
                raise

    def _attempt(self) -> None:
        """Bring what is left, as long as the line holds."""
        self.meter.expect(sum(file.size - self._offset(file) for file in self.left))
        while self.left:
            self._together()

    def _offset(self, file: _File) -> int:
        """From where on it is needed; of what is here only the digest, from its end on."""
        if os.path.lexists(file.target(self.folder)):
            return file.size
        return min(_size(file.part(self.folder)), file.size)

    def _together(self) -> None:
        """Many files on one exchange: each would cost a channel, and a Python on the cluster."""
        asked = self._asked()
        files = [[each.file.path, each.offset, each.file.size] for each in asked]
        request = {"op": "fetch", "id": self.wanted.name, "files": files, "past_failures": True}
        with self.session.exchange(request) as exchange:
            for each in asked:
                goes_on = self._bring(exchange, each)
                self.left.popleft()
                self.progress += 1
                if not goes_on:
                    return
            exchange.result()

    def _asked(self) -> list[_Asked]:
        asked: list[_Asked] = []
        room = _REQUEST_BYTES
        for file in itertools.islice(self.left, _TOGETHER):
            room -= len(file.path)
            if asked and room < 0:
                break
            here = os.path.lexists(file.target(self.folder))
            asked.append(_Asked(file, self._offset(file), here))
        return asked

    def _bring(self, exchange: Exchange, asked: _Asked) -> bool:
        """Receive one file; False when the exchange is of no more use for the others.

        What of it cannot be kept here is read past, unless it is so much that a new exchange is sooner made.
        """
        file, offset = asked.file, asked.offset
        self.done.gone.pop(file.path, None)  # of an attempt that broke off
        with contextlib.closing(Part(file.part(self.folder))) as part:
            kept = self._is_kept(file, _make_folder, self.folder, part.path.parent)
            while "digest" not in (message := self._next(exchange, file)).fields:
                if "failed" in message.fields:
                    self.done.gone[file.path] = shown(str(message["failed"]))
                    return not message.get("over")
                if offset + len(message.data) > file.size:
                    raise RemoteError(
                        f"the cluster sends more of {shown(file.path)} than it said", "fetch it again"
                    )
                kept = kept and self._is_kept(file, part.append, offset, message.data)
                offset += len(message.data)
                self.progress += len(message.data)
                self.meter.add(len(message.data))
                if not kept and file.size - offset > _PAST:
                    return False
            if kept:
                self._is_kept(file, self._keep, asked, part, str(message["digest"]))
        return True

    def _is_kept(self, file: _File, act: Callable[..., None], *words: Any) -> bool:
        """Do something for a file; False, and noted, where this one cannot be kept here."""
        try:
            act(*words)
        except Unkept as error:
            self.done.gone[file.path] = str(error)
            return False
        return True

    def _next(self, exchange: Exchange, file: _File) -> Message:
        """What comes next of a file; older ones end the exchange with a file they cannot read."""
        try:
            message = exchange.get()
        except HpctoolsError as error:
            if isinstance(error, UnreachableError) or shown(file.path) not in error.message:
                raise
            return Message({"failed": error.message, "over": True})
        if "result" in message.fields:
            raise RemoteError(f"the cluster sends nothing of {shown(file.path)}", "fetch it again")
        return message

    def _keep(self, asked: _Asked, part: Part, digest: str) -> None:
        file = asked.file
        target = file.target(self.folder)
        if not digest:  # the cluster saw it change; what has come stays, since most files only grow
            self.done.changed.append(file.path)
        elif asked.here:
            (self.done.present if _is(target, digest) else self.done.other).append(file.path)
        elif self._settled(file, part, digest):
            self.done.new.append(file.path)
        else:  # another hp-fetch may have brought it meanwhile, from the same part
            (self.done.present if _is(target, digest) else self.done.changed).append(file.path)

    def _settled(self, file: _File, part: Part, digest: str) -> bool:
        """Put what has come in its place; False where it is not what was sent, or is there by now."""
        target = file.target(self.folder)
        part.hold()
        whole = not file.size or _is(part.path, digest)
        try:
            if whole:
                _settle(part, target, file)
        except RemoteError:
            if not _is(target, digest):
                raise
            whole = False
        if not whole:
            part.path.unlink(missing_ok=True)
        return whole


def _make_folder(top: Path, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refused(f"cannot make {shown(str(folder))}", error) from None
    if top.resolve() not in (folder.resolve(), *folder.resolve().parents):
        raise RemoteError(f"{shown(str(folder))} is behind a link that leads elsewhere", "remove the link")


def _settle(part: Part, target: Path, file: _File) -> None:
    try:
        if not file.size:
            part.append(0, b"")  # what has come of it before it was emptied goes
        if file.runs:
            mode = part.path.stat().st_mode
            part.path.chmod(mode | (mode & 0o444) >> 2)  # who may read it: the person's umask says
        _date(part.path, file)
        put_in_place(part.path, target)
    except OSError as error:
        raise refused(f"cannot make {shown(str(target))}", error, "nothing was overwritten") from None


def _date(part: Path, file: _File) -> None:
    """Keep the time of the cluster's file: with the size it tells next time that it is here."""
    with contextlib.suppress(OSError, OverflowError, ValueError):
        if file.modified:
            os.utime(part, (time.time(), file.modified))


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

"""Files of the node: written whole or not at all, under one lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

LOCK_SECONDS = 60.0
UNFINISHED = ".hpctools-unfinished-"


class FileError(Exception):
    """A file cannot be read or written; nothing was changed by it."""


def read(path: Path) -> str:
    """A file's text; bytes that are no UTF-8 come back as they were when it is written again.

    Raises:
        OSError: it cannot be read.
    """
    return path.read_bytes().decode("utf-8", "surrogateescape")


def is_so(path: Path, text: str, mode: int | None = None) -> bool:
    """Whether a file has this text and, when given, these permission bits, and belongs to root."""
    try:
        found = path.stat()
        owned = found.st_uid == os.geteuid() and (mode is None or found.st_mode & 0o7777 == mode)
        return owned and read(path) == text
    except OSError:
        return False


def replace(path: Path, text: str, mode: int = 0o644) -> None:
    """Give a file this text: old or new at every instant, on disk when this returns.

    One that is there keeps its mode and owner; a link is followed.

    Raises:
        FileError: it cannot be written; the old one is as it was.
    """
    path = Path(os.path.realpath(path))
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _replace(path, text, mode)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}; the old one is kept") from None


def _replace(path: Path, text: str, mode: int) -> None:
    handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED)
    try:
        with os.fdopen(handle, "wb") as file:
            old = path.stat() if path.exists() else None
            if old is not None:
                os.fchown(handle, old.st_uid, old.st_gid)
            os.fchmod(handle, mode if old is None else old.st_mode & 0o7777)
            file.write(text.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fsync(handle)
        os.replace(fresh, path)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)  # noqa: PTH108
        raise
    _sync_folder(path.parent)


def publish(folder: Path, programs: Mapping[str, str]) -> None:
    """Make a folder of programs that is there as a whole or not at all; one that was damaged is made anew.

    Raises:
        FileError: it cannot be written.
    """
    if all(is_so(folder / name, text, 0o755) for name, text in programs.items()):
        return
    if folder.exists():
        for name, text in programs.items():
            replace(folder / name, text, 0o755)
            (folder / name).chmod(0o755)
        return
    try:
        folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".new-"))
        fresh.chmod(0o755)
        for name, text in programs.items():
            replace(fresh / name, text, 0o755)
        fresh.rename(folder)
        _sync_folder(folder.parent)
    except OSError as error:
        raise FileError(f"{folder} cannot be written: {error.strerror}") from None


def discard(path: Path) -> None:
    """Remove a file or a folder with all that is in it; what is not there is removed already."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock; another holder is waited for.

    Raises:
        FileError: it is still held after LOCK_SECONDS, or cannot be made.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FileError(f"{path} cannot be made: {error.strerror}: run this as root") from None
    try:
        _take(handle, path)
        yield
    finally:
        os.close(handle)


def _take(handle: int, path: Path) -> None:
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise FileError(f"another installer holds {path}: wait for it, or end it") from None
            time.sleep(0.1)

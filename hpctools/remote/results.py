"""Files of a run folder, as they are sent to a laptop."""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpctools.errors import RemoteError, UsageError
from hpctools.remote.names import RECORD_FOLDER, inner_path
from hpctools.remote.wire import CHUNK


@dataclass(frozen=True)
class Result:
    """A file of a run folder.

    Attributes:
        path: below the folder.
        modified: Unix seconds.
    """

    path: str
    size: int
    modified: float
    runs: bool


def results(folder: Path, patterns: Sequence[str], missed: dict[str, str] | None = None) -> list[Result]:
    """Regular files below a folder, by path; links are left out, and what is ours.

    Args:
        patterns: shell patterns of paths, or of folders; all files when there are none.
        missed: takes folders that cannot be listed and may hold such files, each with why.
    """

    def miss(error: OSError) -> None:
        inner = os.path.relpath(error.filename, folder)
        wanted = not patterns or any(_may_hold(inner, each) for each in patterns)
        if missed is not None and wanted and error.errno != errno.ENOENT:  # its job may have removed it
            missed[inner] = f"cannot list {error.filename} on the cluster: {error.strerror}"

    return [
        found
        for found in _walk(folder, miss)
        if not patterns or any(_fits(found.path, each) for each in patterns)
    ]


def _walk(folder: Path, miss: Callable[[OSError], None]) -> Iterator[Result]:
    for here, folders, names in os.walk(folder, onerror=miss):
        folders[:] = sorted(n for n in folders if not (here == str(folder) and n == RECORD_FOLDER))
        for name in sorted(names):
            path = Path(here) / name
            try:
                found = path.lstat()
            except OSError:
                continue  # its job has removed it since
            if stat.S_ISREG(found.st_mode):
                inner = str(path.relative_to(folder))
                yield Result(inner, found.st_size, found.st_mtime, bool(found.st_mode & 0o100))


def _fits(path: str, pattern: str) -> bool:
    pattern = pattern.removeprefix("./").rstrip("/")
    # Its own name names a file, whatever a pattern makes of its brackets.
    return path == pattern or fnmatch.fnmatchcase(path, pattern) or path.startswith(f"{pattern}/")


def _may_hold(folder: str, pattern: str) -> bool:
    """Whether files that a pattern names may lie in a folder; a `*` stands for slashes, too."""
    pattern = pattern.removeprefix("./")
    wild = re.search(r"[*?[]", pattern)
    begins = pattern[: wild.start()] if wild else pattern
    if folder == "." or _fits(folder, pattern) or begins.startswith(f"{folder}/"):
        return True
    return wild is not None and f"{folder}/".startswith(begins)


def content(folder: Path, path: str, offset: int, size: int) -> Iterator[tuple[bytes, str]]:
    """The first `size` bytes of a file from an offset on; the last pair has no bytes, but their SHA-256.

    Instead of the SHA-256 it has nothing where the file is of another size, or was written to meanwhile:
    what was read may be half of one and half of another.

    Raises:
        UsageError: the path leads out of the folder.
        RemoteError: the file cannot be read.
    """
    target = folder / inner_path(path)
    if target.is_symlink() or folder.resolve() not in target.resolve().parents:
        raise UsageError(f"{path!r} is a link", "name files of the run folder")
    digest, done = hashlib.sha256(), 0
    try:
        with target.open("rb") as file:
            before = _state(file.fileno())
            while before[0] == size and done < size and (data := file.read(min(CHUNK, size - done))):
                digest.update(data)
                fresh = data[max(0, offset - done) :]
                done += len(data)
                if fresh:
                    yield fresh, ""
            whole = _state(file.fileno()) == before and before[0] == size
    except OSError as error:
        raise RemoteError(
            f"cannot read {target} on the cluster: {error.strerror}", "see its permissions"
        ) from None
    yield b"", digest.hexdigest() if whole else ""


def _state(descriptor: int) -> tuple[int, int]:
    """Size and time of the last change of what is in a file."""
    found = os.fstat(descriptor)
    return found.st_size, found.st_mtime_ns

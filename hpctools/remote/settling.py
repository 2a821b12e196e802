"""A whole file gets its name, and never that of another (docs/decisions/0193-files-without-hard-links.md)."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path

_NO_LINKS = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS, errno.EINVAL}
)
"""What file systems say that know no hard links, or none between folders."""
_AT_FDCWD = -100
_NOREPLACE = 1


def put_in_place(part: Path, target: Path) -> None:
    """Rename a file of ours to where nothing is.

    Whoever is killed in the middle leaves an empty target at worst: see `take_back`.

    Raises:
        FileExistsError: something is there.
        OSError: it cannot be done.
    """
    try:
        os.link(part, target)  # fails where something is, unlike a rename
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    else:
        part.unlink()
        return
    if not _renamed(part, target):
        _over_an_empty_one(part, target)


def take_back(part: Path, target: Path, size: int) -> None:
    """Remove the empty target that `put_in_place` left when it was killed: beside it lies the whole file.

    Args:
        size: of the whole file.

    Raises:
        OSError: it cannot be removed.
    """
    try:
        whole, found = part.lstat(), target.lstat()
    except OSError:
        return
    if size and whole.st_size == size and stat.S_ISREG(found.st_mode) and not found.st_size:
        target.unlink()


def _renamed(part: Path, target: Path) -> bool:
    """Rename by the kernel's own call that overwrites nothing; False where there is none."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # glibc before 2.28
        return False
    if rename(_AT_FDCWD, os.fsencode(part), _AT_FDCWD, os.fsencode(target), _NOREPLACE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_LINKS:
        return False
    raise OSError(code, os.strerror(code), str(target))


def _over_an_empty_one(part: Path, target: Path) -> None:
    """Take the name with an empty file, which is made only where nothing is; then rename over that."""
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        part.replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            target.unlink()
        raise

"""What a disk says against being written, told with the file system that it is and what to do about it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpctools.conf.mounts import mount_of
from hpctools.errors import HpctoolsError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Write below a folder.

    Raises:
        HpctoolsError: instead of OSError; names the file, and the file system where that is at fault.
    """
    try:
        yield
    except OSError as error:
        named = error.filename2 or error.filename  # of a link or a rename the second is what is made
        path = Path(named) if isinstance(named, str) else folder
        said = error.strerror or os.strerror(error.errno or 0)
        if error.errno in _FULL:
            raise _full(path, said) from None
        raise HpctoolsError(f"cannot write {path}: {said}", _remedy(error.errno, path)) from None


def _full(path: Path, said: str) -> HpctoolsError:
    """What was begun is removed by now, so that a little may be left again; what there is less of ran out."""
    mount = mount_of(path).point
    room = os.statvfs(mount)
    if room.f_files and room.f_favail * room.f_blocks < room.f_bavail * room.f_files:
        left, look = f"{room.f_favail:,} of {room.f_files:,} inodes", f"df -i {mount}"
    else:
        free, size = (blocks * room.f_frsize // 1024 for blocks in (room.f_bavail, room.f_blocks))
        left, look = f"{free:,} of {size:,} KiB", f"df -h {mount}"
    return HpctoolsError(
        f"cannot write {path}: {said}: the file system at {mount} has {left} left, which is not enough",
        f"remove or move files there (`{look}`), then run the same again",
    )


def _remedy(number: int | None, path: Path) -> str:
    if number in _FORBIDDEN:
        return f"run it as root; for root, check the mount and the attributes of {path} (lsattr)"
    if number == errno.EROFS:
        return f"check why the file system at {mount_of(path).point} is mounted read-only (dmesg)"
    return f"check the permissions and the mounts of {path}"

"""Files and folders that are there as a whole or not at all, also after a power cut."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def create(
    path: Path,
    content: bytes,
    mode: int,
    owner: tuple[int, int] | None = None,
    modified: int | None = None,
) -> None:
    """Make a new file and wait until the disk has it; its folder is not synced.

    It is readable by nobody else before it has its mode.

    Args:
        mode: permission bits.
        owner: uid and gid; ours when None.
        modified: when it is to have been written, nanoseconds since 1970; now when None.

    Raises:
        OSError: as the system says.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        if owner is not None and owner != (os.geteuid(), os.getegid()):
            os.fchown(descriptor, *owner)
        os.fchmod(descriptor, mode)
        stream.write(content)
        stream.flush()
        if modified is not None:
            os.utime(descriptor, ns=(modified, modified))
        os.fsync(descriptor)


def replace(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a whole file over an old one, which stays until the new one is on the disk.

    Raises:
        OSError: as the system says; the old file is as it was.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:30]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(text.encode())
            stream.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(folder: Path) -> None:
    """Wait until the disk has a folder's entries."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

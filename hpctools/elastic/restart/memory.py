"""A folder in the node's memory for the slots of one generation; what killed agents left there is removed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108
PREFIX = "hpctools-events-"
FRESH_SECONDS = 60.0


class SlotFolder:
    """A new folder of ours; its lock shows others that somebody lives in it.

    Args:
        memory: where to make it; the system's folder for temporary files when it cannot be written.
    """

    def __init__(self, memory: Path = MEMORY) -> None:
        base = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
        _sweep(base)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        self._lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Give it up."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _sweep(base: Path) -> None:
    """Remove folders of ours whose agent was killed before it could."""
    for folder in base.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another agent was first, or it is in use
            about = folder.lstat()
            if about.st_uid == os.getuid() and time.time() - about.st_mtime > FRESH_SECONDS:
                _remove_if_left(folder)


def _remove_if_left(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)

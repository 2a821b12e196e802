"""A file while it comes: what has come of it, beside its place."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from hpctools.errors import RemoteError
from hpctools.remote.names import shown

_NAMES = (errno.EINVAL, errno.EILSEQ)
"""What file systems say to a name that they do not take: FAT takes none with a colon."""
_OF_ONE = frozenset({*_NAMES, errno.ENAMETOOLONG, errno.EFBIG})
"""What speaks of one file; others may be kept all the same."""


class Unkept(RemoteError):
    """One file cannot be kept here now; it says nothing of others."""


def refused(what: str, error: OSError, remedy: str = "") -> RemoteError:
    """What to raise where a file cannot be made, or written.

    Args:
        what: could not be done.
        remedy: in place of the usual ones, where all files are concerned.
    """
    of_one = error.errno in _OF_ONE
    told = _remedy(error) if of_one or not remedy else remedy
    return (Unkept if of_one else RemoteError)(f"{what}: {error.strerror}", told)


def _remedy(error: OSError) -> str:
    if error.errno == errno.ENAMETOOLONG:
        return "this file system takes no such long names; name another place: --to"
    if error.errno in _NAMES:
        return "this file system may not take such a name; name another place: --to"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free space here, and fetch again"
    return "name another place: --to"


class Part:
    """What has come of a file. From the first byte that is written no other hp-fetch writes it.

    Where the file system knows no `flock`, two at once may spoil it; its digest tells.

    Args:
        path: where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def append(self, offset: int, data: bytes) -> None:
        """Write what comes next; what was behind it goes.

        Raises:
            Unkept: this file cannot be kept here, or another hp-fetch is at it.
            RemoteError: none can, as it seems.
        """
        self.hold()
        try:
            os.ftruncate(self._descriptor, offset)
            while data:
                written = os.pwrite(self._descriptor, data, offset)
                offset, data = offset + written, data[written:]
        except OSError as error:
            raise refused(f"cannot write {shown(str(self.path))}", error) from None

    def hold(self) -> None:
        """Keep others away from it, and make it where it is not there.

        Raises:
            Unkept, RemoteError: as of `append`.
        """
        try:
            while self._descriptor < 0:
                self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
                if not self._is_ours():  # who had it has put it in its place: it is no part any more
                    self.close()
        except OSError as error:
            raise refused(f"cannot write {shown(str(self.path))}", error) from None

    def close(self) -> None:
        """Let it go; what has come stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _is_ours(self) -> bool:
        """Lock it; False where it has another name by now."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise Unkept("another hp-fetch is bringing it here", "fetch again when that is over") from None
        except OSError:
            return True  # no locks here
        try:
            return os.path.samestat(os.fstat(self._descriptor), self.path.lstat())
        except FileNotFoundError:
            return False

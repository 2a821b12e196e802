"""One change of a cluster at a time: flock(2), which NFS and Lustre hand on to other hosts (0078)."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hpctools.conf.apply.who import Who
from hpctools.conf.apply.writing import writing
from hpctools.errors import HpctoolsError

_PAUSE_SECONDS = 0.1


class LockedError(HpctoolsError):
    """Somebody else changes the cluster; the message says who, since when, with which command."""


@contextmanager
def locked(path: Path, who: Who, command: str, wait: float = 0.0) -> Iterator[None]:
    """Hold the lock; the kernel gives it back however the process ends.

    Args:
        path: the lock file; made when missing.
        who: the holder, for others to see.
        command: what the holder does.
        wait: seconds to wait for another holder; 0 does not wait.

    Raises:
        LockedError: another holder did not end in time.
        HpctoolsError: the lock file cannot be made, or its file system has no locks.
    """
    with writing(path.parent):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _take(descriptor, path, wait)
        _sign(descriptor, who, command)
        yield
    finally:
        os.close(descriptor)


def _sign(descriptor: int, who: Who, command: str) -> None:
    note = {"pid": os.getpid(), "host": who.host, "who": who.name, "command": command, "since": time.time()}
    with suppress(OSError):  # on a full disk: the lock is held all the same
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(note).encode(), 0)


def _take(descriptor: int, path: Path, wait: float) -> None:
    end = time.monotonic() + wait
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise LockedError(
                    f"another change is under way: {_holder(descriptor)}",
                    "wait for it, for example with --wait 600",
                ) from None
            time.sleep(_PAUSE_SECONDS)
        except OSError as error:
            raise HpctoolsError(
                f"{path} cannot be locked: {error.strerror}",
                "mount its file system with locks (NFS without nolock, Lustre with flock)",
            ) from None


def _holder(descriptor: int) -> str:
    try:
        note = json.loads(os.pread(descriptor, 4096, 0))
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(note["since"]))
        return f"{note['command']} by {note['who']} since {since} ({_process(note)})"
    except (ValueError, KeyError, TypeError):
        return "its holder has not said who it is yet"


def _process(note: dict[str, Any]) -> str:
    host = note.get("host", "")
    return f"pid {note['pid']}" + (f" on {host}" if host not in ("", socket.gethostname()) else "")

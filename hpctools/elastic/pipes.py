"""Pipes that the agent reads from its loop: roomy, since who writes into a full one stands still."""

from __future__ import annotations

import contextlib
import fcntl
import os

ROOM = 1 << 20  # bytes; what the kernel lets everybody have (pipe(7), pipe-max-size)


def roomy_pipe() -> tuple[int, int]:
    """As os.pipe(), but the reading end does not block, and more than 64 KiB fit where the kernel grants it.

    Raises:
        OSError: there is no pipe to be had.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with contextlib.suppress(OSError):  # the user has many pipes (pipe-user-pages-soft)
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, ROOM)
    return reading, writing

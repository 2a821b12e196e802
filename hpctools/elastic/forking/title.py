"""What ps shows of a process: other words in the place of those that it was started with (Linux)."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

_START, _END = 45, 46  # fields 48 and 49 of proc(5), counted from behind the name


def show_as(words: Sequence[str]) -> None:
    """Have ps show these words for this process; does nothing where they do not fit or there is no /proc.

    The kernel reads a process's words where it put them at the start, in its own memory.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[_START]), int(fields[_END])
        text = b"".join(os.fsencode(word) + b"\0" for word in words)
        if 0 < len(text) <= end - start:
            ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)

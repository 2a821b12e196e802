"""Pipes that the agent reads from its loop: roomy, since who writes into a full one stands still."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable

ROOM = 1 << 20  # bytes; what the kernel lets everybody have (pipe(7), pipe-max-size)
CHUNK = 1 << 16


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


def tapped_pipe(sink: int, heard: Callable[[bytes], None]) -> tuple[int, Passage]:
    """The writing end of a new pipe, and what passes on what comes out of it to `sink`.

    Args:
        sink: the writing end of another pipe; it stays the caller's.
        heard: is given what comes, too; b"" at the end.

    Raises:
        OSError: there is no pipe to be had; nothing is left open.
    """
    with contextlib.ExitStack() as opened:
        reading, writing = roomy_pipe()
        opened.callback(os.close, reading)
        opened.callback(os.close, writing)
        ours = os.dup(sink)
        opened.callback(os.close, ours)
        passage = Passage(reading, ours, heard)
        opened.pop_all()
    return writing, passage


class Passage:
    """What comes out of one pipe goes into another, in our loop, which never waits for who takes it.

    While the second pipe is full nothing is read of the first, and who writes there waits when that is full.

    Args:
        reading, sink: the ends that we have; both are closed by us.
        heard: is given what comes, too; b"" at the end.
    """

    def __init__(self, reading: int, sink: int, heard: Callable[[bytes], None]) -> None:
        self._reading = reading
        self._sink = sink
        self._heard = heard
        self._rest = b""  # of what was heard, and is not taken yet
        self._loop = asyncio.get_running_loop()
        os.set_blocking(sink, False)
        self._loop.add_reader(reading, self._read)

    def finish(self) -> None:
        """Hear what has come, and read no more; it is still passed on, if by and by."""
        heard = 0
        with contextlib.suppress(BlockingIOError):
            while self._reading >= 0 and heard < ROOM:
                heard += self._hear()
        self._stop_reading()
        self._write()

    def _read(self) -> None:
        self._hear()
        self._write()

    def _hear(self) -> int:
        chunk = os.read(self._reading, CHUNK)
        self._heard(chunk)
        self._rest += chunk
        if not chunk:
            self._stop_reading()
        return len(chunk)

    def _stop_reading(self) -> None:
        if self._reading >= 0:
            self._loop.remove_reader(self._reading)
            os.close(self._reading)
            self._reading = -1

    def _write(self) -> None:
        if self._sink < 0:
            return
        try:
            while self._rest:
                self._rest = self._rest[os.write(self._sink, self._rest) :]
        except BlockingIOError:
            if self._reading >= 0:
                self._loop.remove_reader(self._reading)
            self._loop.add_writer(self._sink, self._go_on)
            return
        except OSError:
            self._rest = b""  # nobody takes it any more: it is lost, as it would be without us
        if self._reading < 0:
            self._loop.remove_writer(self._sink)
            os.close(self._sink)
            self._sink = -1

    def _go_on(self) -> None:
        self._loop.remove_writer(self._sink)
        if self._reading >= 0:
            self._loop.add_reader(self._reading, self._read)
        self._write()

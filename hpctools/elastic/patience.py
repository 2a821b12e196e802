"""Silence that is borne, counted only while we run ourselves.

A machine that is suspended, or a job (`scontrol suspend`), stops a whole run at once. Afterwards nobody has
been silent: who took the time that passed for the others' silence would hang up on all of them.
"""

from __future__ import annotations

import asyncio
import math
import select
import socket
import time
from collections.abc import Callable

SLICE_SECONDS = 0.25


class Patience:
    """So many seconds of silence.

    Args:
        seconds: that are borne, from the last `heard` on.
        clock: seconds, never going back.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self.heard()

    def heard(self) -> None:
        """The other side has said something."""
        self._left, self._last = self._seconds, self._clock()

    def is_over(self) -> bool:
        """Whether it is silent for too long; to be asked every `slice` seconds: of far more we slept."""
        now = self._clock()
        passed, self._last = now - self._last, now
        self._left -= min(passed, 2 * SLICE_SECONDS)
        return self._left <= 0

    @property
    def slice(self) -> float:
        """Seconds until it should be asked again, so that the end is not missed by a part of a slice."""
        return min(SLICE_SECONDS, max(self._left, 0.001))


class Lines:
    """Lines that come over a blocking connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._here = b""
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def read(self, silence: float) -> bytes:
        """The next line, with its end; empty when the other side has hung up.

        Args:
            silence: seconds that are borne.

        Raises:
            TimeoutError: nothing came for so long.
            OSError: the connection is broken.
        """
        patience = Patience(silence)
        while b"\n" not in self._here:
            if self._poll.poll(math.ceil(patience.slice * 1000)):
                part = self._connection.recv(65_536)
                if not part:
                    return b""
                self._here += part
                patience.heard()
            elif patience.is_over():
                raise TimeoutError(f"nothing came for {silence:g} s")
        line, _, self._here = self._here.partition(b"\n")
        return line + b"\n"

    def close(self) -> None:
        """For who reads, and nobody else: the number of a closed connection may soon be another one's."""
        self._connection.close()


async def read_line(reader: asyncio.StreamReader, silence: float) -> bytes:
    """The next line that comes, as `Lines.read` gives it.

    Raises:
        asyncio.TimeoutError: nothing came for `silence` seconds.
        OSError, ValueError: the connection is broken, or a line too long.
    """
    reading, patience = asyncio.ensure_future(reader.readline()), Patience(silence)
    try:
        while not (await asyncio.wait({reading}, timeout=patience.slice))[0]:
            if patience.is_over():
                raise asyncio.TimeoutError
        return reading.result()
    finally:
        reading.cancel()

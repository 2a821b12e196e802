"""How far files are on their way, for a person at a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

_FIRST_SECONDS = 1.0
"""What is done before needs no line."""
_STEP_SECONDS = 0.25
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


class Meter:
    """One line that is written anew, where somebody sees it: without a stream, or on no terminal, none.

    Args:
        stream: beside the output; None writes nothing.
        program: in whose name.
        clock: seconds.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        program: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream if stream is not None and stream.isatty() else None
        self._program, self._clock = program, clock
        self._total = self._come = self._width = 0
        self._next = clock() + _FIRST_SECONDS

    def expect(self, size: int) -> None:
        """So many bytes are to come, from now on."""
        self._total, self._come = size, 0

    def add(self, size: int) -> None:
        """So many bytes have come."""
        self._come += size
        if self._stream is not None and self._clock() >= self._next:
            self._next = self._clock() + _STEP_SECONDS
            text = f"{self._program}: {_of(self._come, self._total)}"
            self._stream.write("\r" + text.ljust(self._width))
            self._stream.flush()
            self._width = len(text)

    def clear(self) -> None:
        """Take the line away, so that another can be written."""
        if self._width and self._stream is not None:
            # Blanks: not all terminals know a command for that.
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
        self._width = 0

    def aside(self, tell: Callable[[str], None]) -> Callable[[str], None]:
        """The same `tell`, on a line of its own."""

        def told(text: str) -> None:
            self.clear()
            tell(text)

        return told


def _of(come: int, total: int) -> str:
    power = next((n for n in range(len(_UNITS) - 1) if total < 1000 ** (n + 1)), len(_UNITS) - 1)
    digits = 1 if power else 0
    share = min(100, 100 * come // total) if total else 100
    return f"{come / 1000**power:.{digits}f} of {total / 1000**power:.{digits}f} {_UNITS[power]} ({share} %)"

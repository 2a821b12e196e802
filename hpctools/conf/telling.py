"""Telling somebody what is being done, without depending on it that they listen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

Tell = Callable[[str], None]
"""Shows a line."""


def unfailing(tell: Tell) -> Tell:
    """The same, but nothing happens when it cannot be shown: a closed pipe, a lost terminal, a full disk.

    A change of a cluster that is half done must go on or be taken back, whether anybody reads of it or not.
    """

    def told(line: str) -> None:
        with suppress(OSError, ValueError):  # ValueError: Python's word for a closed stream
            tell(line)

    return told

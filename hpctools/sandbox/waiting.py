"""Waiting for something of a sandbox, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable

from hpctools.errors import CommandError, SandboxError

ANSWER_SECONDS = 30.0
PAUSE_SECONDS = 0.05


def until(true: Callable[[], bool], what: str, remedy: str) -> None:
    """Wait until `true` says so; a command of it that fails counts as not yet.

    Raises:
        SandboxError: it did not within 30 s: `what`, and `remedy`.
    """
    limit = time.monotonic() + ANSWER_SECONDS
    while not _try(true):
        if time.monotonic() > limit:
            raise SandboxError(f"{what} within {ANSWER_SECONDS:.0f} s", remedy)
        time.sleep(PAUSE_SECONDS)


def _try(true: Callable[[], bool]) -> bool:
    try:
        return true()
    except CommandError:
        return False

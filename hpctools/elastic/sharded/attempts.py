"""Whether a store is thought to work: when it does not, it is said once, and tried later and later."""

from __future__ import annotations

import time
from collections.abc import Callable

from hpctools.elastic.checkpoint.saver import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS


class Attempts:
    """What came of one rank's writing; heard from the thread that writes.

    Args:
        warn: told of the first failure after a success, of the first success after a failure, and once of
            each other trouble until it is over.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._failures = 0
        self._next_try = 0.0
        self._told: set[str] = set()

    @property
    def has_failed(self) -> bool:
        """Whether the last one did."""
        return self._failures > 0

    @property
    def may_try(self) -> bool:
        """Whether it is time for another one."""
        return time.monotonic() >= self._next_try

    def succeeded(self, step: int) -> None:
        """What we had to write for this step is written."""
        if self._failures:
            self._warn(f"checkpoints are written again (step {step})")
        self._failures, self._next_try = 0, 0.0

    def failed(self, message: str) -> None:
        """It could not be written; the message says why."""
        pause = min(FIRST_RETRY_SECONDS * 2**self._failures, LAST_RETRY_SECONDS)
        self._next_try = time.monotonic() + pause
        if not self._failures:
            self._warn(
                f"{message}; the training goes on without, and it is tried again, first in {pause:g} s"
            )
        self._failures = min(self._failures + 1, 16)

    def trouble(self, kind: str, message: str) -> None:
        """Say something that may come again and again, once until it is over."""
        if kind not in self._told:
            self._told.add(kind)
            self._warn(message)

    def over(self, kind: str) -> None:
        """It is as it should be."""
        self._told.discard(kind)

"""Whether a store is thought to work: when it does not, it is said once, and tried later and later."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

from hpctools.elastic.checkpoint.saver import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS
from hpctools.errors import ElasticError

SETTLE_SECONDS = 5.0  # who is still writing would have no part in the next one, and fail that, too


class GivenUp(ElasticError):
    """A worker left or was lost while it was written, which says nothing of the store.

    Args:
        error: what was missing, or could not be written any more.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(
            f"a worker left or was lost while it was written ({getattr(error, 'message', error)})",
            "those that stay save again in a few seconds; if it comes often, give faster storage",
        )


class Attempts:
    """What came of one rank's writing; heard from the thread that writes.

    Args:
        warn: told of the first failure after a success, of the first success after a failure, and once of
            each other trouble until it is over.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._failures = 0
        self._is_given_up = False
        self._next_try = 0.0
        self._told: set[str] = set()

    @property
    def has_failed(self) -> bool:
        """Whether the last one did."""
        return self._failures > 0

    @property
    def is_late(self) -> bool:
        """Whether the last one came to nothing, so that the next one is not to wait until it is due."""
        return self.has_failed or self._is_given_up

    @property
    def may_try(self) -> bool:
        """Whether it is time for another one."""
        return time.monotonic() >= self._next_try

    def succeeded(self, step: int) -> None:
        """What we had to write for this step is written."""
        if self._failures:
            self._warn(f"checkpoints are written again (step {step})")
        self._failures, self._is_given_up, self._next_try = 0, False, 0.0
        self.over("given up")

    def failed(self, message: str) -> None:
        """It could not be written; the message says why."""
        pause = min(FIRST_RETRY_SECONDS * 2**self._failures, LAST_RETRY_SECONDS)
        self._next_try = time.monotonic() + pause
        if not self._failures:
            self._warn(
                f"{message}; the training goes on without, and it is tried again, first in {pause:g} s"
            )
        self._failures = min(self._failures + 1, 16)

    def given_up(self, message: str) -> None:
        """Somebody left while it was written: no failure, so however often it comes the pause is short."""
        self._is_given_up = True
        self._next_try = time.monotonic() + SETTLE_SECONDS
        self.trouble("given up", message)

    def trouble(self, kind: str, message: str) -> None:
        """Say something that may come again and again, once until it is over."""
        if kind not in self._told:
            self._told.add(kind)
            self._warn(message)

    def over(self, kind: str) -> None:
        """It is as it should be."""
        self._told.discard(kind)


def check_wanted(folder: Path, give_up_at: float) -> None:
    """Make sure that rank 0 has not given up what is written into a folder.

    Args:
        give_up_at: when it may; infinite while nobody leaves, and then nothing is looked at.

    Raises:
        GivenUp: the folder is gone.
    """
    if give_up_at < math.inf and not os.path.exists(folder):  # noqa: PTH110 - a Path's raises what NFS may say
        raise GivenUp(ElasticError("rank 0 has given it up"))

"""What may hang is not asked again at each look: a look that waits makes the node's reports late."""

from __future__ import annotations

import logging

from hpctools.errors import CommandTimeout
from hpctools.login.durations import spelt

_log = logging.getLogger("hpctools.login")
FIRST_SECONDS = 60.0
LONGEST_SECONDS = 600.0


class Pause:
    """Time in which something is not asked: after it has hung, each time in a row for longer.

    Args:
        what: it is, as people read it.
        meanwhile: what becomes of it until it answers.
    """

    def __init__(self, what: str, meanwhile: str) -> None:
        self._what, self._meanwhile = what, meanwhile
        self._seconds = 0.0
        self._until = float("-inf")

    def lasts(self, now: float) -> bool:
        """Whether it is not to be asked yet.

        Args:
            now: seconds, never going back.
        """
        return now < self._until

    def hung(self, now: float, error: CommandTimeout) -> None:
        """It was asked and did not answer; that is said once."""
        if now - self._until > LONGEST_SECONDS:
            self._seconds = 0.0  # it has answered meanwhile, or nothing was asked
        if not self._seconds:
            _log.warning(
                "%s: %s is asked again in %s, and later each %s, until it answers; %s",
                error, self._what, spelt(FIRST_SECONDS), spelt(LONGEST_SECONDS), self._meanwhile,
            )  # fmt: skip
        self._seconds = min(2 * self._seconds or FIRST_SECONDS, LONGEST_SECONDS)
        self._until = now + self._seconds

    def answered(self) -> None:
        """It was asked and has answered, whatever that was."""
        if self._seconds:
            _log.info("%s answers again", self._what)
        self._seconds, self._until = 0.0, float("-inf")

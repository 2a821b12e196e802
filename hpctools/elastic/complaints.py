"""What cannot be done at present: told once, and not at every attempt."""

from __future__ import annotations

from collections.abc import Callable


class Complaints:
    """Remembers what was told of what fails.

    Args:
        tell: whom it is told.
    """

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._said: dict[str, str] = {}

    def say(self, what: str, why: object) -> None:
        """Something cannot be done: told when that is new, or for another reason than last time."""
        if self._said.get(what) != str(why):
            self._said[what] = str(why)
            self._tell(f"{what}: {why}")

    def over(self, what: str) -> None:
        """It can be done again."""
        self._said.pop(what, None)

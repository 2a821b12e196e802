"""Names and numbers of accounts, as the node's directory has them. It is not asked in each look."""

from __future__ import annotations

import pwd
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

HOLDS_SECONDS = 600.0
"""So long an answer is believed: accounts are renamed, and numbers given to others."""
_MOST = 4096

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Answers(Generic[Key, Value]):
    """What the directory said last, also while it is away.

    Args:
        ask: raises KeyError where it does not know, or is away; ValueError for what can be no account's.
        monotonic: seconds, never going back.
        holds: seconds for which an answer is believed.
    """

    def __init__(
        self,
        ask: Callable[[Key], Value],
        monotonic: Callable[[], float] = time.monotonic,
        holds: float = HOLDS_SECONDS,
    ) -> None:
        self._ask, self._holds = ask, holds
        self._monotonic = monotonic
        self._said: dict[Key, tuple[Value, float]] = {}

    def __call__(self, key: Key) -> Value:
        """The answer; raises as `ask` does where there was never one."""
        said, now = self._said.get(key), self._monotonic()
        if said is not None and now < said[1]:
            return said[0]
        try:
            found = self._ask(key)
        except KeyError:
            if said is None:
                raise
            found = said[0]
        if len(self._said) >= _MOST:
            self._said.clear()  # people who make up names are to fill no memory
        self._said[key] = found, now + self._holds
        return found


account_of: Answers[int, str] = Answers(lambda uid: pwd.getpwuid(uid).pw_name)
"""The account of a number; KeyError as long as nobody knows it."""
number_of: Answers[str, int] = Answers(lambda user: pwd.getpwnam(user).pw_uid)
"""The number of an account; KeyError as long as nobody knows it, ValueError where it can be none."""


def user_name(uid: int) -> str:
    """The account of this number; the number itself as long as nobody knows it."""
    try:
        return account_of(uid)
    except KeyError:
        return str(uid)

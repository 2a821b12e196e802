"""Those who come later are told of a penalty that lasts; those who were there were told when it began."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hpctools.login.agent.sessions import OpenSession


@dataclass(frozen=True)
class Notice:
    """What somebody is to know.

    Attributes:
        mark: the same as long as it is the same matter, whatever its words are.
    """

    mark: str
    words: str


class Reminders:
    """Who was told of what, by session: those with a terminal only."""

    def __init__(self) -> None:
        self._told: Mapping[str, tuple[str, frozenset[str]]] = {}

    def due(
        self, notices: Mapping[str, Notice], sessions: Iterable[OpenSession]
    ) -> Iterator[tuple[OpenSession, str]]:
        """Sessions that came after a notice began, and what is to be told there.

        Args:
            notices: by user; who had none, or another one, was told of it a moment ago wherever they are.
        """
        here: dict[str, dict[str, OpenSession]] = {user: {} for user in notices}
        for each in sessions:
            if each.user in here and each.ttys:
                here[each.user][each.key] = each
        before, self._told = (
            self._told,
            {user: (notice.mark, frozenset(here[user])) for user, notice in notices.items()},
        )
        for user, notice in notices.items():
            mark, told = before.get(user, ("", frozenset()))
            if mark == notice.mark:
                yield from ((each, notice.words) for key, each in here[user].items() if key not in told)

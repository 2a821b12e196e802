"""Who is an administrator on this node, by name and by group, asked anew now and then."""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Callable

from hpctools.login.agent.accounts import Answers
from hpctools.site.access import Administrators

_FRESH = 60.0
"""So long an answer holds."""
_AGAIN = 5.0
"""So long a directory is left alone that did not know: one that is away may answer late."""


class AdministratorCheck:
    """A question: whether this user is an administrator.

    A directory is asked once a minute at most. What it does not know, as it may be away, is as it said last;
    a group that it had, and has no more, counts on until the agent restarts.

    Args:
        monotonic: seconds, never going back.
    """

    def __init__(self, stated: Administrators, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._stated, self._monotonic = stated, monotonic
        self._in_group: Answers[str, bool] = Answers(self._ask, monotonic, _FRESH)
        self._had: frozenset[str] = frozenset()
        self._unknown: dict[str, float] = {}

    def __call__(self, user: str) -> bool:
        """Whether they are one, for all that is known."""
        return self._answer(user) or False

    def is_unsure(self, user: str) -> bool:
        """Whether nobody knows: the directory has never said it, and does not know the account now."""
        return self._answer(user) is None

    def _answer(self, user: str) -> bool | None:
        if user == "root" or user in self._stated.users:
            return True
        now = self._monotonic()
        if now - self._unknown.get(user, -_AGAIN) < _AGAIN:
            return None
        try:
            found = self._in_group(user)
        except KeyError:
            # In one step, since many threads ask: whoever goes through them has them all.
            fresh = {name: at for name, at in self._unknown.items() if now - at < _AGAIN}
            self._unknown = {**fresh, user: now}
            return None
        if user in self._unknown:
            self._unknown = {name: at for name, at in self._unknown.items() if name != user}
        return found

    def _ask(self, user: str) -> bool:
        """Whether they are in one of the groups; KeyError where the directory cannot tell now."""
        try:
            theirs = set(os.getgrouplist(user, pwd.getpwnam(user).pw_gid))
        except OSError as error:
            raise KeyError(user) from error
        groups = {name: self._group(name) for name in self._stated.groups}
        # Members may be known where a person's groups are not: each is kept for a while by itself.
        there = [group for group in groups.values() if group is not None]
        if any(group.gr_gid in theirs or user in group.gr_mem for group in there):
            return True
        if any(groups[name] is None for name in self._had):
            raise KeyError(user)
        return False

    def _group(self, name: str) -> grp.struct_group | None:
        try:
            found = grp.getgrnam(name)
        except KeyError:
            return None
        self._had |= {name}
        return found

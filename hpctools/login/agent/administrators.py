"""Who is an administrator on this node, by name and by group, asked anew now and then."""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Callable

from hpctools.site.access import Administrators

_FRESH = 60.0


def administrator_check(
    stated: Administrators, monotonic: Callable[[], float] = time.monotonic
) -> Callable[[str], bool]:
    """A question: whether this user is an administrator. A directory is asked once a minute at most."""
    known: dict[str, tuple[float, bool]] = {}

    def is_administrator(user: str) -> bool:
        if user == "root" or user in stated.users:
            return True
        at, answer = known.get(user, (-_FRESH, False))
        if monotonic() - at >= _FRESH:
            answer = _in_group(user, stated.groups)
            known[user] = (monotonic(), answer)
        return answer

    return is_administrator


def _in_group(user: str, groups: tuple[str, ...]) -> bool:
    wanted = {number for name in groups if (number := _gid(name)) is not None}
    try:
        return not wanted.isdisjoint(os.getgrouplist(user, pwd.getpwnam(user).pw_gid))
    except (KeyError, OSError):
        return False


def _gid(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None

"""The edge: which groups people are in, as this machine knows them."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Iterable


def groups_of(users: Iterable[str]) -> dict[str, frozenset[str]]:
    """Find the names of people's groups; who is not known here is left out."""
    found = {}
    for user in users:
        try:
            numbers = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
        except KeyError:
            continue
        found[user] = frozenset(name for number in numbers if (name := _name(number)))
    return found


def _name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return ""

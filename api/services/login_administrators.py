"""Administrators by group: only nodes know a directory's groups, and tell of whom they have seen.

Whom the site file names is not kept here (`Rules.administrators`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update

from api.db.login_models import ADMINISTRATORS
from api.db.login_store import Moment

REMEMBERED_SECONDS = 90 * 86400
"""So long after a node last told of somebody; until then a node that tells the opposite is believed."""
_REFRESHED_SECONDS = 86400

_ALL = select(ADMINISTRATORS)
_ONE = select(ADMINISTRATORS.c.told_at).where(ADMINISTRATORS.c.user == bindparam("name"))
_REFRESH = update(ADMINISTRATORS).where(ADMINISTRATORS.c.user == bindparam("name"))
_REFRESH = _REFRESH.values(told_at=bindparam("at"))


def is_remembered(moment: Moment, user: str) -> bool:
    """Whether the last node that told of somebody's sessions took them for an administrator."""
    rows = moment.rows(_ONE, {"name": user})
    return bool(rows) and moment.now - rows[0].told_at < REMEMBERED_SECONDS


def remember(moment: Moment, told: Mapping[str, bool]) -> None:
    """Note down who is an administrator, and who is one no longer.

    Args:
        told: whether a node takes them for one, by people who have sessions there.
    """
    known = {row.user: row.told_at for row in moment.rows(_ALL)}
    new = [user for user, is_one in told.items() if is_one and user not in known]
    if new:
        moment.execute(insert(ADMINISTRATORS), [{"user": user, "told_at": moment.now} for user in new])
    for user, at in known.items():
        if told.get(user) and moment.now - at >= _REFRESHED_SECONDS:
            moment.execute(_REFRESH, {"name": user, "at": moment.now})
    over = [user for user, at in known.items() if _is_over(told.get(user), moment.now - at)]
    if over:
        moment.execute(delete(ADMINISTRATORS).where(ADMINISTRATORS.c.user.in_(over)))


def _is_over(told: bool | None, seconds: int) -> bool:
    return told is False or (told is None and seconds >= REMEMBERED_SECONDS)


def told_of(sessions: Iterable[Any], named: frozenset[str]) -> dict[str, bool]:
    """What a report says of people whom the site file does not name.

    Args:
        sessions: those of a report; one of them is enough for an administrator.
    """
    told: dict[str, bool] = {}
    for each in sessions:
        if each.user not in named:
            told[each.user] = told.get(each.user, False) or each.administrator
    return told

"""Sessions over the limit that nobody could refuse before they began: Session Manager asks nobody.

Their node is the first to know of them. They are to end, and their node tells their owners why.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import bindparam, update

from api.db.login_models import LEASES
from api.db.login_store import Moment
from api.services.login_leases import own_of, refusal
from api.services.login_rules import Rules
from hpctools.login.names import EVERYBODYS

ASKS_NOBODY = "ssm"
"""The kind of such sessions."""

_SPARE = update(LEASES).where(LEASES.c.id == bindparam("lease"), LEASES.c.why != "")
_SPARE = _SPARE.values(ending=False, why="")
_END = update(LEASES).where(LEASES.c.id == bindparam("lease")).values(ending=True, why=bindparam("words"))


def spare(moment: Moment, leases: Iterable[int]) -> None:
    """Have those stay that were too many: their owner turned out to be somebody else, or to have no limit.

    What somebody asked to end does end.
    """
    for each in leases:
        moment.execute(_SPARE, {"lease": each})


def end_excess(moment: Moment, rules: Rules, fresh: Iterable[Any]) -> None:
    """Have those end that are too many, the newest of them.

    Args:
        fresh: leases of sessions that have just come, whose owners are limited.
    """
    waiting = {row.id: row for row in fresh if row.user != EVERYBODYS}
    for row in sorted(waiting.values(), key=lambda row: (row.opened_at, row.id)):
        own = [each for each in moment.rows(*own_of(row.user)) if each.id not in waiting]
        refused = refusal(moment, row.user, rules.limits(row.department), own, waiting)
        if refused is None:
            del waiting[row.id]
        else:
            moment.execute(_END, {"lease": row.id, "words": refused.message})

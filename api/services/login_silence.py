"""A silence of all nodes is the service's own: it was away, or nobody could reach it.

Nobody has told that the sessions of before are over, and leases that ran out meanwhile would let in too many
until each node has reported. So whoever comes first after it, a report, a login or who asks for a place, has
the leases that were alive at its beginning count for one heartbeat more. So does the first report after it:
who asks may have come long before, where the service was there and the agents were cut off. What nodes then
report takes their place.
"""

from __future__ import annotations

from sqlalchemy import bindparam, func, select, update

from api.db.login_models import LEASES, NODES
from api.db.login_store import Moment
from api.db.together import Question

_PLACED = "placed"
"""A place that is held for who is on their way lasts no longer."""

NEWEST: Question = (select(func.max(NODES.c.heard_at)), {})
"""Asks when any node was heard last."""

# What has been prolonged runs out later than all that was told before the silence, so who asks prolongs it
# once: else they would keep themselves out for as long as they ask. The first report is once by itself. A
# node that was gone before it began is not waited for.
_OUTLAST = (
    update(LEASES)
    .where(
        LEASES.c.kind != _PLACED,
        LEASES.c.expires_at > bindparam("began"),
        LEASES.c.node.in_(select(NODES.c.name).where(NODES.c.heard_at > bindparam("gone"))),
    )
    .values(expires_at=bindparam("until"))
)
_OUTLAST_ONCE = _OUTLAST.where(LEASES.c.expires_at < bindparam("prolonged"))


def shortest(lease_seconds: int) -> int:
    """From so many seconds on it is a silence: nodes tell of themselves three times in a heartbeat."""
    return lease_seconds // 3 + 2


def outlast(moment: Moment, newest: int | None, lease_seconds: int, *, report: bool = False) -> bool:
    """Have leases outlast a silence of all nodes; whether any does.

    Args:
        newest: what `NEWEST` finds; None where no node ever told anything.
        lease_seconds: a heartbeat.
        report: a node tells of itself, and so ends the silence.
    """
    if newest is None or moment.now - newest < shortest(lease_seconds):
        return False
    times = {"began": newest, "gone": newest - lease_seconds, "until": moment.now + lease_seconds}
    if report:
        return moment.execute(_OUTLAST, times) > 0
    prolonged = newest + shortest(lease_seconds) + lease_seconds
    return moment.execute(_OUTLAST_ONCE, {**times, "prolonged": prolonged}) > 0

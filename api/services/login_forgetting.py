"""Login nodes that are gone: forgotten when somebody says so, or after a week, and where they were.

A node that is replaced may have another name (HyperPod's names are addresses), so that the one before would
be silent for ever. Its address may be another machine's next: load balancers are told of it for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Engine, bindparam, delete, insert, select

from api.auth.principal import Principal
from api.db.engine import writing
from api.db.login_models import FORMER, LEASES, NODES, LoginDrain
from api.db.login_store import LoginStore, Moment
from api.services import audit
from api.services.login_nodes import drain_of
from api.services.login_rules import Rules

DAY = 86_400
FORGET_SECONDS = 7 * DAY
"""A node that is silent for so long is forgotten by itself; not one that is drained, which somebody wanted
known."""
TELL_SECONDS = 7 * DAY
"""So long it is told which address a node had; who registers it later knows what they do."""

_BY_NAME = select(NODES).where(NODES.c.name == bindparam("at"))
_GONE = select(NODES.c.name).where(
    NODES.c.heard_at < bindparam("old"), NODES.c.drained.is_(False), NODES.c.draining.is_(False)
)
_TOLD = select(FORMER.c.address, FORMER.c.node, FORMER.c.left_at).where(FORMER.c.left_at > bindparam("old"))
_TAKEN_AGAIN = delete(FORMER).where(FORMER.c.address == bindparam("where"))
_LONG_AGO = delete(FORMER).where(FORMER.c.left_at <= bindparam("old"))


@dataclass(frozen=True)
class FormerAddress:
    """An address that a node had, and how many seconds ago it was given up."""

    address: str
    node: str
    left_seconds_ago: int


def forget(
    store: LoginStore, books: Engine, rules: Rules, name: str, principal: Principal, now: int
) -> Literal["forgotten", "unknown", "reports"]:
    """Forget a node with its leases and its drain; told in the audit trail.

    Returns:
        What came of it: nothing is changed where no such node is known, or it still reports.
    """
    drained = drain_of(books, name).draining
    with store.reading() as moment:
        row = next(iter(moment.rows(_BY_NAME, {"at": name})), None)
        reports = row is not None and moment.now - row.heard_at <= rules.policy.silent_after
    if row is None and not drained:
        return "unknown"
    if reports:
        return "reports"
    address = row.address if row is not None else ""
    with writing(books) as session:
        before = {"address": address, "drained": drained}
        audit.record(session, principal, "login.forget", name, before, None, at=now)
        if drained:
            session.add(LoginDrain(node=name, at=now, principal=principal.name, draining=False, why=""))
    with store.writing() as moment:
        _remove(moment, name)
        _give_up(moment, name, address)
    return "forgotten"


def forget_the_silent(moment: Moment) -> None:
    """Forget nodes that have been silent for too long, and addresses that need not be told any more.

    Their addresses are not given up: where all agents' tokens have run out, one that is mended first would
    have the load balancer let all others go, whose sshds work.
    """
    for (name,) in moment.rows(_GONE, {"old": moment.now - FORGET_SECONDS}):
        _remove(moment, name)
    moment.execute(_LONG_AGO, {"old": moment.now - TELL_SECONDS})


def moved(moment: Moment, node: str, before: str, after: str) -> None:
    """A node has another address from now on, or its first one; one that tells none has not moved."""
    if not after:
        return
    moment.execute(_TAKEN_AGAIN, {"where": after})
    _give_up(moment, node, before)


def former_addresses(store: LoginStore) -> list[FormerAddress]:
    """Addresses that nodes had, as far as they are told, in order."""
    with store.reading() as moment:
        rows: list[Any] = moment.rows(_TOLD, {"old": moment.now - TELL_SECONDS})
        now = moment.now
    return [FormerAddress(address, node, max(0, now - left)) for address, node, left in sorted(rows)]


def _remove(moment: Moment, name: str) -> None:
    moment.execute(delete(LEASES).where(LEASES.c.node == name))
    moment.execute(delete(NODES).where(NODES.c.name == name))


def _give_up(moment: Moment, node: str, address: str) -> None:
    others = select(NODES.c.name).where(NODES.c.address == address, NODES.c.name != node)
    if not address or moment.rows(others.limit(1)):
        return
    moment.execute(_TAKEN_AGAIN, {"where": address})
    moment.execute(insert(FORMER), {"address": address, "node": node, "left_at": moment.now})

"""Leases: who may begin a session, what is really open, what ends. All times are of the store's clock.

A lease lives as long as its node tells of it: what a node no longer has goes with its next report, what a
silent node had goes `lease_seconds` after its last one. So nobody is refused for what is gone for longer.
Where all nodes were silent the service was away: `login_silence`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import (
    ColumnElement,
    Engine,
    and_,
    bindparam,
    delete,
    func,
    insert,
    not_,
    or_,
    select,
    true,
    update,
)

from api.auth.principal import Principal
from api.db.engine import writing
from api.db.login_models import LEASES, NODES
from api.db.login_store import LoginStore, Moment
from api.db.together import Question
from api.services import audit
from api.services.login_administrators import is_remembered
from api.services.login_rules import Rules
from api.services.login_silence import NEWEST, outlast
from hpctools.login.limits import Limits, Open, Refused, decide
from hpctools.login.names import EVERYBODYS, is_nameless

PLACED = "placed"
SSM = "ssm"
TMUX = "tmux"
SWEPT_SECONDS = 150
"""So long a session of Session Manager's counts on a node that no agent ever told of: the function that
sweeps each minute prolongs it, and may miss a turn."""
_Teller = Literal["agent", "sweep", "nobody"]
"""`nobody`: the node's agent has fallen silent."""

_ALIVE = LEASES.c.expires_at > bindparam("now")
COUNTED = and_(_ALIVE, LEASES.c.kind.not_in((PLACED, TMUX)))
"""Sessions as limits see them, those of administrators among them; `now` is to be given."""


_OWED = and_(LEASES.c.administrator, not_(LEASES.c.audited))
_OWN = select(LEASES).where(LEASES.c.user == bindparam("user"))
NEW = insert(LEASES).inline()
"""A row for what was asked: see `lease_row`."""
_LIFTED = select(NODES.c.unlimited).where(NODES.c.name == bindparam("at"))
_HEARD = select(NODES.c.heard_at).where(NODES.c.name == bindparam("at"))
_PROLONG = update(LEASES).where(LEASES.c.id == bindparam("lease")).values(expires_at=bindparam("until"))
_SWEPT = update(LEASES).where(LEASES.c.id == bindparam("lease"))
_SWEPT = _SWEPT.values(expires_at=bindparam("until"), department=bindparam("of"))
_TAKE = update(NODES).where(NODES.c.name == bindparam("at")).values(taken=NODES.c.taken + bindparam("by"))


@dataclass(frozen=True)
class Asked:
    """A session that wants to begin.

    Attributes:
        living: the user's other sessions of this kind on the node; what is not named is over. None: unknown.
        gone: the node's sessions that are over for certain, and never come again.
    """

    node: str
    claim: str
    user: str
    kind: str = "ssh"
    origin: str = ""
    living: frozenset[str] | None = None
    gone: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Session:
    """A session that is open.

    Attributes:
        since: Unix seconds.
        ending: it is to end.
    """

    id: int
    node: str
    user: str
    department: str
    kind: str
    claim: str
    origin: str
    since: int
    administrator: bool
    ending: bool


def open_lease(store: LoginStore, rules: Rules, asked: Asked) -> Refused | None:
    """Let a session begin, or refuse it; asked again of the same session, the answer is that it may.

    One that is to end has no lease any more. What nodes have told counts: who is an administrator by a group,
    and where somebody has lifted the limits.

    Every lease, of ssh and of Session Manager, goes through here one after the other: limits are exact.
    """
    administrator = asked.user in rules.administrators
    department = rules.department(asked.user)
    with store.writing(NEWEST) as moment:
        outlast(moment, moment.told[0][0][0], rules.lease_seconds)
        _forget(moment, asked.node, asked.gone - {asked.claim})
        if asked.living is not None:
            _forget_others(moment, asked, asked.living)
        own = moment.rows(*own_of(asked.user))
        teller = _teller(moment, rules, asked)
        expires = moment.now + (rules.lease_seconds if teller != "sweep" else _swept_seconds(rules))
        same = [row for row in own if _is(row, asked.node, asked.claim)] or _told_of(moment, asked)
        same = [row for row in same if row.expires_at > moment.now or teller == "nobody"]
        if same:
            return _asked_again(moment, rules, same[0], teller, expires)
        limited = not administrator and not (asked.kind == SSM and asked.user == EVERYBODYS)
        if limited and (refused := refusal(moment, asked.user, rules.limits(department), own)):
            administrator = is_remembered(moment, asked.user)
            if not administrator and not _is_lifted(moment, asked.node):
                return refused
        place = _own_claim(asked.node, place_claim(asked.user))
        gone = moment.execute(delete(LEASES).where(or_(_own_claim(asked.node, asked.claim), place)))
        row = lease_row(asked, department, moment.now, expires, administrator)
        moment.later(NEW, row)
        take_places(moment, asked.node, 1 - gone)
    return None


def _told_of(moment: Moment, asked: Asked) -> Sequence[Any]:
    """A session that its node's agent has told of as somebody else's: the node knows as whom it runs.

    Who asks of Session Manager's has the account from AWS's names for people, which may be others.
    """
    if asked.kind != SSM:
        return ()
    told = and_(_own_claim(asked.node, asked.claim), LEASES.c.seen, LEASES.c.user != EVERYBODYS)
    return [row for row in moment.rows(select(LEASES).where(told)) if not is_nameless(row.user)]


def _asked_again(moment: Moment, rules: Rules, row: Any, teller: _Teller, expires: int) -> Refused | None:
    """What is said of a session that is known, and how long and for whom it counts from now on.

    One that is to end is, as long as it is asked for: else it would begin anew where AWS has not ended it.
    """
    if row.expires_at <= moment.now:
        # Its node is silent, and it counts no longer; but AWS lists it, and what is forgotten is asked anew.
        moment.later(_PROLONG, {"lease": row.id, "until": moment.now})
    elif teller == "sweep":
        moment.later(_SWEPT, {"lease": row.id, "until": expires, "of": rules.department(row.user)})
    return _over(row) if row.ending else None


def _teller(moment: Moment, rules: Rules, asked: Asked) -> _Teller:
    """Who tells of a session for as long as it is open.

    AWS lists the sessions of a node that has crashed for many minutes more. Whatever an agent told of counts
    for a heartbeat after its last word, so what is known there is granted, and counts no longer for it.
    """
    if asked.kind != SSM:
        return "agent"
    heard = moment.rows(_HEARD, {"at": asked.node})
    if not heard:
        return "sweep"
    return "agent" if moment.now - heard[0].heard_at < rules.lease_seconds else "nobody"


def _swept_seconds(rules: Rules) -> int:
    return max(rules.lease_seconds, SWEPT_SECONDS)


def close_lease(store: LoginStore, node: str, claim: str) -> bool:
    """A session is over; whether it was known. One that the trail is still to have goes with a report.

    On a node that never reports it goes at once, and no trail has it.
    """
    own = _own_claim(node, claim)
    with store.writing() as moment:
        reports = bool(moment.rows(_HEARD, {"at": node}))
        gone = moment.execute(delete(LEASES).where(own, not_(_OWED) if reports else true()))
        take_places(moment, node, -gone)
        return gone > 0 or bool(moment.rows(select(LEASES.c.id).where(own)))


def own_of(user: str) -> Question:
    """Asks for all that is known of somebody, also what no longer counts."""
    return _OWN, {"user": user}


def take_places(moment: Moment, node: str, by: int) -> None:
    """Count so many more sessions on a node, until its next report."""
    if by:
        moment.later(_TAKE, {"at": node, "by": by})


def _over(row: Any) -> Refused:
    return Refused(row.why or f"{row.user}: session {row.id} is to end, as somebody asked.", ())


def _is_lifted(moment: Moment, node: str) -> bool:
    rows = moment.rows(_LIFTED, {"at": node})
    return bool(rows) and bool(rows[0].unlimited)


def refusal(
    moment: Moment, user: str, limits: Limits, own: Sequence[Any], besides: Collection[int] = ()
) -> Refused | None:
    """Why somebody may not begin a session now; None when they may.

    Args:
        own: what `own_of` the user finds.
        besides: leases of the department that do not count, by their numbers.
    """
    counted = [
        _open(row, moment.now)
        for row in own
        if row.expires_at > moment.now and row.kind not in (PLACED, TMUX) and not row.administrator
    ]
    others = 0
    if limits.per_department is not None:
        limited = and_(COUNTED, LEASES.c.administrator.is_(False))
        query = select(func.count()).where(limited, LEASES.c.department == limits.department)
        query = query.where(LEASES.c.id.not_in(besides)) if besides else query
        ((others,),) = moment.rows(query, {"now": moment.now})
    return decide(user, counted, others, limits)


def sessions(
    store: LoginStore,
    users: Collection[str] | None,
    node: str | None = None,
    after: int = 0,
    limit: int | None = None,
) -> list[Session]:
    """Sessions that are open, a tmux that waits among them, in the order in which they became known.

    Args:
        users: whose; None for everybody's.
    """
    query = select(LEASES).where(_ALIVE, LEASES.c.kind != PLACED, LEASES.c.id > after)
    if users is not None:
        query = query.where(LEASES.c.user.in_(users))
    if node is not None:
        query = query.where(LEASES.c.node == node)
    with store.reading() as moment:
        return [
            _session(row)
            for row in moment.rows(query.order_by(LEASES.c.id).limit(limit), {"now": moment.now})
        ]


def find(store: LoginStore, number: int) -> Session | None:
    """A session that is open, by its number."""
    found = sessions(store, None, after=number - 1, limit=1)
    return found[0] if found and found[0].id == number else None


def ask_to_end(store: LoginStore, books: Engine, session: Session, by: Principal, now: int) -> None:
    """The node's agent hears it with its next report, and ends the session; told in the audit trail."""
    what = {"user": session.user, "node": session.node, "claim": session.claim, "kind": session.kind}
    with writing(books) as trail:
        audit.record(trail, by, "login.end", f"session {session.id}", what, None, at=now)
    with store.writing() as moment:
        moment.execute(update(LEASES).where(LEASES.c.id == session.id).values(ending=True, why=""))


def lease_row(
    asked: Asked, department: str, opened: int, expires: int, administrator: bool
) -> dict[str, Any]:
    """A row for what was asked."""
    return {
        "node": asked.node,
        "claim": asked.claim,
        "user": asked.user,
        "department": department,
        "kind": asked.kind,
        "origin": asked.origin,
        "opened_at": opened,
        "expires_at": expires,
        "administrator": administrator,
        "seen": False,
        "audited": False,
        "ending": False,
        "why": "",
    }


def place_claim(user: str) -> str:
    """The claim of a place that is held; nobody has more than one on a node, however often they ask."""
    return f"{PLACED}:{user}"


def _forget(moment: Moment, node: str, claims: Iterable[str]) -> None:
    wanted = sorted(claims)
    if wanted:
        over = and_(LEASES.c.node == node, LEASES.c.claim.in_(wanted), not_(_OWED))
        take_places(moment, node, -moment.execute(delete(LEASES).where(over)))


def _forget_others(moment: Moment, asked: Asked, living: Iterable[str]) -> None:
    mine = and_(LEASES.c.node == asked.node, LEASES.c.user == asked.user, LEASES.c.kind == asked.kind)
    others = LEASES.c.claim.not_in([*living, asked.claim])
    gone = moment.execute(delete(LEASES).where(mine, others, not_(_OWED)))
    take_places(moment, asked.node, -gone)


def _is(row: Any, node: str, claim: str) -> bool:
    return bool(row.node == node and row.claim == claim)


def _own_claim(node: str, claim: str) -> ColumnElement[bool]:
    return and_(LEASES.c.node == node, LEASES.c.claim == claim)


def _open(row: Any, now: int) -> Open:
    since = max(0, now - row.opened_at)
    return Open(row.id, row.node, row.user, row.claim, row.origin, row.kind, since, row.ending)


def _session(row: Any) -> Session:
    return Session(
        row.id,
        row.node,
        row.user,
        row.department,
        row.kind,
        row.claim,
        row.origin,
        row.opened_at,
        row.administrator,
        row.ending,
    )

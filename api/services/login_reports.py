"""What a login node's agent tells: the sessions that are really open there. What we thought gives way to it.

Nothing here depends on the node's clock: it tells ages. A report that was overtaken is not taken.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine, and_, bindparam, delete, insert, or_, select, update

from api.db.engine import StoreError, writing
from api.db.login_models import LEASES, NODES
from api.db.login_store import LoginStore, Moment
from api.services import audit
from api.services.login_administrators import remember, told_of
from api.services.login_agents import former_agents, is_of_another_machine
from api.services.login_excess import ASKS_NOBODY, end_excess, spare
from api.services.login_forgetting import forget_the_silent, moved
from api.services.login_leases import PLACED, SSM, TMUX, Asked, lease_row, place_claim
from api.services.login_nodes import drain_of
from api.services.login_rules import Rules
from api.services.login_silence import NEWEST, outlast
from hpctools.login.names import EVERYBODYS, is_nameless

_log = logging.getLogger("hpctools.api")

FORGOTTEN_SECONDS = 3600
"""So long somebody is told that they had a session on a node that is silent."""
_BEGINNING_SECONDS = 15
_LOOKED_THROUGH = 500
"""Entries of the trail: what was told and not noted down is told again within seconds."""
_BOOKS_MS = 50
"""So long a report waits for who is at work on the books: few threads take those of all nodes."""
_CHUNK = 500
_SELDOM = 100
"""The first report of an agent and every hundredth after it look for nodes that are gone."""

# Every node sends a report every few seconds: statements are put together once.
_TOLD = ("address", "agent", "sequence", "cpus", "cpu", "memory", "draining", "closed")
_KNOWN = select(NODES).where(NODES.c.name == bindparam("at"))
_HEARD = (
    update(NODES)
    .where(NODES.c.name == bindparam("at"))
    .values({name: bindparam(name) for name in (*_TOLD, "drained", "heard_at", "taken", "former")})
)
_LEASES_HERE = select(LEASES).where(LEASES.c.node == bindparam("at"))
_PROLONG = (
    update(LEASES)
    .where(LEASES.c.node == bindparam("at"), LEASES.c.kind != PLACED)
    .values(expires_at=bindparam("until"))
)
_GIVE = (
    update(LEASES)
    .where(LEASES.c.node == bindparam("at"), LEASES.c.claim == bindparam("which"))
    .values({name: bindparam(name) for name in ("user", "department", "administrator")} | {"audited": False})
)
_FORGET = delete(LEASES).where(
    or_(
        LEASES.c.expires_at < bindparam("old"),
        and_(LEASES.c.kind == PLACED, LEASES.c.expires_at <= bindparam("now")),
    )
)


@dataclass(frozen=True)
class OpenSession:
    """A session that is open on a node.

    Attributes:
        age: seconds since it began.
        administrator: the node knows its owner as one.
    """

    claim: str
    user: str
    kind: str
    origin: str
    age: float
    administrator: bool


@dataclass(frozen=True)
class Report:
    """What an agent tells.

    Attributes:
        agent, sequence: a later report of the same agent has a larger number.
        sample_age: seconds since the sessions were looked at.
        unlimited: the file that lifts limits is there.
        gone: what is over for certain, whether a report ever told of it or not.
        closed: the node's sshd refuses people who connect, or does not answer.
    """

    node: str
    agent: str
    sequence: int
    sample_age: float
    address: str
    cpus: int
    cpu: float
    memory: float
    draining: bool
    unlimited: bool
    sessions: tuple[OpenSession, ...]
    gone: frozenset[str] = frozenset()
    closed: bool = False


@dataclass(frozen=True)
class Answer:
    """What the agent is told.

    Attributes:
        end: sessions that are to end, by their claims.
        tell: why, for their owners: those that are too many.
        drained: by the service's own word; `draining` is also so by the node's, which `why` is not of.
        other: where the machine is that has told of this node since, when it was another agent's.
    """

    taken: bool
    draining: bool = False
    why: str = ""
    end: tuple[str, ...] = ()
    tell: Mapping[str, str] = field(default_factory=dict)
    drained: bool = False
    other: str | None = None


def take(store: LoginStore, books: Engine, rules: Rules, report: Report, by: str) -> Answer:
    """Take a report: the node is up, and these sessions are what is open there.

    Args:
        by: who reports, for the audit trail.
    """
    with store.writing() as moment:
        known = moment.rows(_KNOWN, {"at": report.node})
        if known and known[0].agent == report.agent and known[0].sequence >= report.sequence:
            return Answer(False)
        if known and is_of_another_machine(known[0], report.agent, moment.now - rules.lease_seconds):
            return Answer(False, other=known[0].address)
        ((newest,),) = moment.rows(*NEWEST)
        outlast(moment, newest, rules.lease_seconds, report=True)
        # Read while nobody else changes the store: whoever drains the node changes the books first, then it.
        said = drain_of(books, report.node)
        rows, new = _reconcile(moment, rules, report)
        if known and not report.unlimited:
            rows = _without_excess(moment, rules, report, rows, new, moment.now - known[0].heard_at)
        _hear(moment, report, known, said.draining, rows)
        moment.execute(_FORGET, {"old": moment.now - FORGOTTEN_SECONDS, "now": moment.now})
        if report.sequence % _SELDOM == 1:
            forget_the_silent(moment)
        lifted = bool(known and known[0].unlimited)
    _tell(store, books, report, [row for row in rows if row.administrator and not row.audited], lifted, by)
    end = tuple(row.claim for row in rows if row.ending)
    tell = {row.claim: row.why for row in rows if row.ending and row.why}
    why = said.why if said.draining else ""
    return Answer(True, said.draining or report.draining, why, end, tell, said.draining)


def _without_excess(
    moment: Moment, rules: Rules, report: Report, rows: list[Any], new: Collection[str], seconds: int
) -> list[Any]:
    """Have those end that nobody could refuse; the rows as they are then.

    Only who came since the last report, `seconds` ago: who was there before has been counted. And only where
    the service was there to be asked: who came while it did not answer stays, however they came.
    """
    if seconds > rules.lease_seconds:
        return rows
    young = moment.now - seconds - _BEGINNING_SECONDS
    fresh = [
        row
        for row in rows
        if row.claim in new and row.kind == ASKS_NOBODY and row.opened_at >= young and not row.administrator
    ]
    end_excess(moment, rules, fresh)
    return moment.rows(_LEASES_HERE, {"at": report.node}) if fresh else rows


def _hear(moment: Moment, report: Report, known: Sequence[Any], drained: bool, rows: Sequence[Any]) -> None:
    """Note down how the node is; `rows` are its leases."""
    told = {name: getattr(report, name) for name in _TOLD}
    told |= {"drained": drained, "heard_at": moment.now}
    told["former"] = former_agents(known[0], report.agent) if known else ""
    # Without a route for a moment it knows no address: it has not moved, and may tell another one next.
    told["address"] = report.address or (known[0].address if known else "")
    told["taken"] = sum(row.kind != TMUX and row.expires_at > moment.now for row in rows)
    if not known or known[0].address != report.address:
        moved(moment, report.node, known[0].address if known else "", report.address)
    if known:
        moment.execute(_HEARD, {**told, "at": report.node})
    else:
        moment.execute(insert(NODES), {"name": report.node, "unlimited": False, **told})


def _reconcile(moment: Moment, rules: Rules, report: Report) -> tuple[list[Any], set[str]]:
    """Bring the node's leases to what is open there; the rows that are left.

    With them the claims that are new, or somebody else's than was thought.
    """
    here = moment.rows(_LEASES_HERE, {"at": report.node})
    known = {row.claim: row for row in here if row.kind != PLACED}
    told = {session.claim: session for session in report.sessions}
    # What has just begun may not be among them: on a busy node it takes seconds to become a session.
    looked = moment.now - report.sample_age - _BEGINNING_SECONDS
    gone = [
        row.id
        for claim, row in known.items()
        if claim not in told
        and (row.seen or row.opened_at <= looked or claim in report.gone)
        # The trail may have been busy: what it is still to have goes once it does.
        and (row.audited or not row.administrator)
    ]
    # Who came in without a lease, as the service did not answer, has arrived all the same.
    new = [session for claim, session in told.items() if claim not in known]
    arrived = {place_claim(session.user) for session in new if session.kind != TMUX}
    gone += [row.id for row in here if row.kind == PLACED and row.claim in arrived]
    new_here = [row.id for claim, row in known.items() if claim in told and not row.seen]
    for first in range(0, len(gone), _CHUNK):
        moment.execute(delete(LEASES).where(LEASES.c.id.in_(gone[first : first + _CHUNK])))
    _set(moment, new_here, seen=True)
    others = [told[claim] for claim, row in known.items() if claim in told and _is_anothers(row, told[claim])]
    for session in others:
        moment.execute(_GIVE, _owned(report.node, session, rules))
    # The node knows groups, which whoever opened the lease did not.
    risen = [row.id for claim, row in known.items() if not row.administrator and _is_one(told.get(claim))]
    _set(moment, risen, administrator=True)
    spare(moment, [row.id for row in known.values() if _is_spared(row, told.get(row.claim))])
    _put_right(moment, rules, known.values())
    remember(moment, told_of((each for each in report.sessions if each.kind != TMUX), rules.administrators))
    expires = moment.now + rules.lease_seconds
    moment.execute(_PROLONG, {"at": report.node, "until": expires})
    if new:
        moment.execute(insert(LEASES), [_row(report.node, each, rules, moment.now, expires) for each in new])
    return moment.rows(_LEASES_HERE, {"at": report.node}), {each.claim for each in (*new, *others)}


def _is_anothers(row: Any, session: OpenSession) -> bool:
    """Whether a node tells of a session of Session Manager's that it runs as another account.

    The node knows that, and whoever asked has AWS's names for people; unless it is everybody's account, or a
    number that its directory has no name for. What it says now counts: a session may be over whose name
    another process bears (sudo's, called as Session Manager's worker), and nobody is to have that one.
    """
    if row.kind != SSM or session.kind != SSM:
        return False
    return session.user not in (row.user, EVERYBODYS) and not is_nameless(session.user)


def _is_spared(row: Any, session: OpenSession | None) -> bool:
    """Whether a session ends for a limit that its node's word of its owner has lifted, or made another's."""
    if session is None or not (row.ending and row.why):
        return False
    return session.administrator or _is_anothers(row, session)


def _owned(node: str, session: OpenSession, rules: Rules) -> dict[str, Any]:
    """Whose a session is, for `_GIVE`."""
    administrator = session.administrator or session.user in rules.administrators
    owner = {"user": session.user, "department": rules.department(session.user)}
    return {"at": node, "which": session.claim, "administrator": administrator, **owner}


def _put_right(moment: Moment, rules: Rules, known: Iterable[Any]) -> None:
    """Sessions count for the department that their owner has now, whatever it was called when they began."""
    others: dict[str, list[int]] = {}
    for row in known:
        if (department := rules.department(row.user)) != row.department:
            others.setdefault(department, []).append(row.id)
    for department, leases in others.items():
        _set(moment, leases, department=department)


def _is_one(session: OpenSession | None) -> bool:
    return session is not None and session.administrator


def _set(moment: Moment, leases: Sequence[int], **values: bool | str) -> None:
    for first in range(0, len(leases), _CHUNK):
        chosen = LEASES.c.id.in_(leases[first : first + _CHUNK])
        moment.execute(update(LEASES).where(chosen).values(**values))


def _row(node: str, session: OpenSession, rules: Rules, now: int, expires: int) -> dict[str, Any]:
    asked = Asked(node, session.claim, session.user, session.kind, session.origin)
    administrator = session.administrator or session.user in rules.administrators
    opened, department = now - int(session.age), rules.department(session.user)
    return {**lease_row(asked, department, opened, expires, administrator), "seen": True}


def _tell(
    store: LoginStore, books: Engine, report: Report, entered: Sequence[Any], lifted: bool, by: str
) -> None:
    """Tell the audit trail who came in past the limits; what fails is told with the next report.

    The trail and the store are two: what was told before the second could note it down is not told again.
    """
    if not entered and lifted == report.unlimited:
        return
    with store.reading() as moment:
        now = moment.now
    try:
        _write_down(books, report, entered, lifted, by, now)
    except StoreError as error:
        # A reconciliation may be at work for a minute. A node whose report waited for it would be silent.
        _log.warning("%s: the audit trail is told with a later report: %s", report.node, error)
        return
    with store.writing() as moment:
        moment.execute(
            update(LEASES).where(LEASES.c.id.in_([row.id for row in entered])).values(audited=True)
        )
        moment.execute(update(NODES).where(NODES.c.name == report.node).values(unlimited=report.unlimited))


def _write_down(
    books: Engine, report: Report, entered: Sequence[Any], lifted: bool, by: str, now: int
) -> None:
    """Write into the trail what it does not have yet."""
    with writing(books, _BOOKS_MS) as session:
        told = audit.newest(session, _LOOKED_THROUGH)
        for row in entered:
            what = {"node": row.node, "kind": row.kind, "origin": row.origin, "claim": row.claim}
            if not any(each.tells("login.administrator", row.user, what, row.opened_at) for each in told):
                audit.record(session, by, "login.administrator", row.user, None, what, at=now)
        if lifted != report.unlimited and not _is_told(told, report):
            audit.record(session, by, "login.unlimited", report.node, lifted, report.unlimited, at=now)


def _is_told(told: Sequence[audit.Told], report: Report) -> bool:
    """Whether the last that the trail says of a node's limits is what it reports."""
    said = next((e for e in told if (e.action, e.subject) == ("login.unlimited", report.node)), None)
    return said is not None and said.after == report.unlimited

"""Login nodes: what they are, which are drained, where a session goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from sqlalchemy import Engine, bindparam, case, delete, func, select, update

from api.auth.principal import Principal
from api.db.combined import Combined
from api.db.engine import reachable, reading, writing
from api.db.in_loop import in_loop
from api.db.login_models import DRAINS, LEASES, NODES, LoginDrain
from api.db.login_store import WAIT_SECONDS, LoginStore, Moment
from api.db.together import Question
from api.services import audit
from api.services.login_administrators import is_remembered
from api.services.login_leases import (
    NEW,
    PLACED,
    TMUX,
    Asked,
    lease_row,
    own_of,
    place_claim,
    refusal,
    take_places,
)
from api.services.login_rules import Rules
from api.services.login_silence import outlast
from hpctools.login.limits import Refused
from hpctools.login.placement import Home, Node, Nowhere, Placed, State, Wish, place

_Wanted = tuple[Rules, Wish]
HOLD_SECONDS = 30
"""So long a place counts as taken by somebody who is on their way."""

_IS_PLACED = LEASES.c.kind == PLACED
_COUNTS = (
    select(
        LEASES.c.node,
        func.sum(case((_IS_PLACED, 0), else_=1)).label("sessions"),
        func.sum(case((_IS_PLACED, 1), else_=0)).label("placed"),
        func.count(func.distinct(case((_IS_PLACED, None), else_=LEASES.c.user))).label("users"),
    )
    .where(LEASES.c.kind != TMUX, LEASES.c.expires_at > bindparam("now"))
    .group_by(LEASES.c.node)
)
# Fifty of them are read with each login: by place, since a name for each cell takes longer.
_NODES = select(
    NODES.c.name,
    NODES.c.address,
    NODES.c.taken,
    NODES.c.cpus,
    NODES.c.cpu,
    NODES.c.memory,
    NODES.c.draining,
    NODES.c.drained,
    NODES.c.heard_at,
    NODES.c.closed,
    NODES.c.unlimited,
)

_HEARD_AT = 8
"""Its place among these."""

_PROLONG = update(LEASES).where(LEASES.c.id == bindparam("lease")).values(expires_at=bindparam("until"))
_DROP = delete(LEASES).where(LEASES.c.id == bindparam("lease"))


@dataclass(frozen=True)
class Drain:
    """Whether somebody drained a node, and why."""

    draining: bool = False
    why: str = ""


@dataclass(frozen=True)
class KnownNode:
    """A node, and what people are told of it.

    Attributes:
        placed: sessions that were sent there and have not come yet.
        users: people with a session there.
        silent: nothing was heard of it lately, whatever its state is.
    """

    node: Node
    state: State
    address: str
    sessions: int
    placed: int
    users: int
    unlimited: bool
    why: str
    silent: bool = False


@dataclass(frozen=True)
class Way:
    """An answer to who wants to log in, the address of the node, and those of the others by name."""

    found: Placed | Nowhere | Refused
    address: str = ""
    others: Mapping[str, str] = field(default_factory=dict)


_SAID = select(DRAINS.c.draining, DRAINS.c.why).where(DRAINS.c.node == bindparam("node"))
_SAID = _SAID.order_by(DRAINS.c.id.desc()).limit(1)


def drain_of(books: Engine, node: str) -> Drain:
    """What was last said of one node."""
    with reachable(), books.connect() as connection, connection.begin():
        row = connection.execute(_SAID, {"node": node}).first()
    return Drain(*row) if row is not None else Drain()


def drains(books: Engine) -> dict[str, Drain]:
    """What was last said of each node that anything was said of."""
    newest = select(func.max(DRAINS.c.id)).group_by(DRAINS.c.node)
    query = select(DRAINS.c.node, DRAINS.c.draining, DRAINS.c.why).where(DRAINS.c.id.in_(newest))
    with reading(books) as session:
        return {node: Drain(draining, why) for node, draining, why in session.execute(query)}


def set_drain(
    store: LoginStore, books: Engine, name: str, wanted: Drain, principal: Principal, now: int
) -> bool:
    """Drain a node, or give it back; told in the audit trail. Returns whether the node has told of itself."""
    with writing(books) as session:
        query = select(LoginDrain).where(LoginDrain.node == name).order_by(LoginDrain.id.desc()).limit(1)
        last = session.scalar(query)
        before = Drain(last.draining, last.why) if last else Drain()
        session.add(LoginDrain(node=name, at=now, principal=principal.name, **asdict(wanted)))
        audit.record(session, principal, "login.drain", name, asdict(before), asdict(wanted), at=now)
    with store.writing() as moment:
        changed = moment.execute(update(NODES).where(NODES.c.name == name).values(drained=wanted.draining))
    return changed > 0


def known_nodes(store: LoginStore, rules: Rules, drained: Mapping[str, Drain]) -> list[KnownNode]:
    """All nodes by name; one that is drained before it ever told anything, too."""
    policy = rules.policy
    with store.reading() as moment:
        return [
            replace(each, state=policy.state(each.node), silent=policy.is_silent(each.node))
            for each in _read(moment, drained)
        ]


def place_user(store: LoginStore, rules: Rules, wish: Wish) -> Way:
    """Choose a node for somebody, and hold a place there.

    In the event loop those who wait for their turn are placed together, in the order in which they came.

    Args:
        wish: where they are already is looked up here.
    """
    loop = in_loop()
    if loop is None:
        return _place_all(store, lambda: [(rules, wish)])[0]
    together = loop.own(store, lambda: Combined(partial(_place_all, store), WAIT_SECONDS))
    return together.served(wish.user, (rules, wish))


def _place_all(store: LoginStore, those: Callable[[], Sequence[_Wanted]]) -> list[Way]:
    """Place several people one after the other, each of them once: all of it is stored or nothing.

    Args:
        those: who, as soon as it is their turn.
    """
    wanted: list[_Wanted] = []

    def questions() -> list[Question]:
        wanted.extend(those())
        return [(_NODES, {}), *(own_of(wish.user) for _, wish in wanted)]

    with store.writing_for(questions) as moment:
        rows, *owns = moment.told
        newest = max((row[_HEARD_AT] for row in rows), default=None)
        nodes = {row[0]: _node(row, moment.now) for row in rows}
        found, longer = [], False
        for (rules, wish), told in zip(wanted, owns, strict=True):
            longer |= outlast(moment, newest, rules.lease_seconds)
            own = moment.rows(*own_of(wish.user)) if longer else told
            found.append(_place(moment, rules, wish, own, nodes))
    addresses = {row[0]: row[1] or row[0] for row in rows}
    return [_way(each, addresses) for each in found]


def _place(
    moment: Moment, rules: Rules, wish: Wish, own: Sequence[Any], nodes: dict[str, Node]
) -> Placed | Nowhere | Refused:
    """One of them; `nodes` are what the next one finds afterwards."""
    department = rules.department(wish.user)
    if wish.user not in rules.administrators:
        refused = refusal(moment, wish.user, rules.limits(department), own)
        if refused is not None and not is_remembered(moment, wish.user):
            return refused
    found = place(replace(wish, homes=_homes(own)), list(nodes.values()), rules.policy)
    if isinstance(found, Placed):
        for name, by in _hold(moment, wish.user, department, found.node, own):
            take_places(moment, name, by)
            if name in nodes:
                nodes[name] = replace(nodes[name], sessions=nodes[name].sessions + by)
    return found


def _way(found: Placed | Nowhere | Refused, addresses: Mapping[str, str]) -> Way:
    if not isinstance(found, Placed):
        return Way(found)
    return Way(found, addresses[found.node], {name: addresses[name] for name in found.others})


def _homes(rows: Sequence[Any]) -> dict[str, Home]:
    homes: dict[str, Home] = {}
    for row in rows:
        home = homes.get(row.node, Home())
        if row.kind == TMUX:
            homes[row.node] = replace(home, tmux=True)
        elif row.kind == PLACED:
            homes[row.node] = replace(home, expected=True)
        else:
            homes[row.node] = replace(home, sessions=home.sessions + 1)
    return homes


def _hold(moment: Moment, user: str, department: str, node: str, own: Sequence[Any]) -> list[tuple[str, int]]:
    """One place for somebody who is on their way, wherever they were sent before.

    Returns:
        By how many nodes have more sessions for it.
    """
    held, expires = [row for row in own if row.kind == PLACED], moment.now + HOLD_SECONDS
    if [row.node for row in held] == [node]:
        moment.later(_PROLONG, {"lease": held[0].id, "until": expires})
        return []
    for row in held:
        moment.later(_DROP, {"lease": row.id})
    place_ = Asked(node, place_claim(user), user, PLACED)
    moment.later(NEW, lease_row(place_, department, moment.now, expires, False))
    return [*((row.node, -1) for row in held), (node, 1)]


def _node(row: Any, now: int, sessions: int | None = None) -> Node:
    """What a row of _NODES says; by default with the sessions that it counts itself."""
    name, _, taken, cpus, cpu, memory, draining, drained, heard_at, closed, _ = row
    silent_for = max(0.0, float(now - heard_at))
    count = taken if sessions is None else sessions
    return Node(name, count, cpus, cpu, memory, draining or drained, silent_for, closed)


def _read(moment: Moment, drained: Mapping[str, Drain]) -> list[KnownNode]:
    counts = {row.node: row for row in moment.rows(_COUNTS, {"now": moment.now})}
    rows = {row.name: row for row in moment.rows(_NODES)}
    names = sorted({*rows, *(name for name, said in drained.items() if said.draining)})
    return [_known(name, rows.get(name), counts.get(name), drained, moment.now) for name in names]


def _known(name: str, row: Any, count: Any, drained: Mapping[str, Drain], now: int) -> KnownNode:
    sessions, placed, users = (count.sessions, count.placed, count.users) if count else (0, 0, 0)
    said = drained.get(name, Drain())
    node = Node(name, sessions + placed, draining=said.draining, silent_for=None)
    if row is not None:
        node = _node(row, now, sessions + placed)
    local = "drained on the node itself" if node.draining else ""
    return KnownNode(
        node,
        "up",
        (row.address if row is not None else "") or name,
        sessions,
        placed,
        users,
        bool(row is not None and row.unlimited),
        said.why if said.draining else local,
    )

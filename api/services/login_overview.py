"""Login nodes as people and Prometheus look at them: nodes, sessions, limits, each read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Engine, bindparam, func, select

from api.db.login_models import LEASES
from api.db.login_store import LoginStore, Moment
from api.services.login_administrators import is_remembered
from api.services.login_leases import COUNTED, Session, sessions
from api.services.login_nodes import KnownNode, drains, known_nodes
from api.services.login_people import People
from api.services.login_rules import Rules

_LIMITED = (COUNTED, LEASES.c.administrator.is_(False))
_BY_DEPARTMENT = select(LEASES.c.department, func.count()).where(*_LIMITED).group_by(LEASES.c.department)
_OF_USER = select(func.count()).where(*_LIMITED, LEASES.c.user == bindparam("user"))
_BY_NODE_AND_KIND = (
    select(LEASES.c.node, LEASES.c.kind, func.count())
    .where(LEASES.c.expires_at > bindparam("now"))
    .group_by(LEASES.c.node, LEASES.c.kind)
)


@dataclass(frozen=True)
class DepartmentUse:
    """What a department has of what it may have.

    Attributes:
        limit: None for none.
    """

    name: str
    sessions: int
    limit: int | None


@dataclass(frozen=True)
class LoginOverview:
    """What somebody may see of login nodes.

    Attributes:
        departments: of the accounts that they may see, and their own.
        own: how many sessions of theirs count; None for who is no person, or is not limited.
        sessions: those that they may see, the first of them.
        more: whether there are others after these.
    """

    nodes: tuple[KnownNode, ...]
    departments: tuple[DepartmentUse, ...]
    own: int | None
    sessions: tuple[Session, ...]
    more: bool


def read_overview(
    store: LoginStore, books: Engine, people: People, node: str | None, after: int, limit: int
) -> LoginOverview:
    """What somebody may see.

    Args:
        node: sessions of this node only.
        after: sessions that became known after the one of this number.
        limit: so many sessions at most.
    """
    rules = people.rules
    found = sessions(store, people.seen(), node, after, limit + 1)
    with store.reading() as moment:
        used: Mapping[str, int] = dict(map(tuple, moment.rows(_BY_DEPARTMENT, {"now": moment.now})))
        own = _own(moment, people)
    return LoginOverview(
        nodes=tuple(known_nodes(store, rules, drains(books))),
        departments=tuple(
            DepartmentUse(name, used.get(name, 0), rules.limits(name).per_department)
            for name in _departments(people)
        ),
        own=own,
        sessions=tuple(found[:limit]),
        more=len(found) > limit,
    )


def _own(moment: Moment, people: People) -> int | None:
    user = people.user
    if user is None or user in people.rules.administrators or is_remembered(moment, user):
        return None
    ((own,),) = moment.rows(_OF_USER, {"now": moment.now, "user": user})
    return int(own)


def _departments(people: People) -> list[str]:
    own = people.rules.department(people.user) if people.user is not None else ""
    return [
        name
        for name in dict.fromkeys(people.rules.departments.values())
        if name == own or people.principal.may_see(people.site, name)
    ]


@dataclass(frozen=True)
class LoginFigures:
    """What operators watch.

    Attributes:
        states: how many nodes are in which state.
        leases: what counts now, by node and kind.
    """

    states: Mapping[str, int]
    leases: Mapping[tuple[str, str], int]


def read_figures(store: LoginStore, books: Engine, rules: Rules) -> LoginFigures:
    """The figures of now.

    Raises:
        UnreachableError: the database does not answer.
    """
    states = [node.state for node in known_nodes(store, rules, drains(books))]
    with store.reading() as moment:
        rows = moment.rows(_BY_NODE_AND_KIND, {"now": moment.now})
    return LoginFigures(
        {state: states.count(state) for state in ("up", "full", "closed", "draining", "silent")},
        {(node, kind): count for node, kind, count in rows},
    )

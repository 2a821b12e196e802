"""The page of login nodes: how they are, who is there, and how many sessions there may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from urllib.parse import urlencode

from api.pages.frame import Frame
from api.pages.render import render
from api.pages.tables import Cell, Column, Row, Table, bar, text
from api.pages.wording import DASH, duration, minute_name, percentage
from api.services.login_leases import TMUX, Session
from api.services.login_nodes import KnownNode
from api.services.login_overview import DepartmentUse, LoginOverview
from api.services.login_rules import Rules
from hpctools.login.placement import Node, Policy, State

PATH = "/login-nodes"

_NODES = (
    Column("Node"),
    Column("State"),
    Column("Sessions", "number"),
    Column("People", "number", minor=True),
    Column("CPU", "number"),
    Column("", "bar", minor=True),
    Column("Memory", "number", minor=True),
    Column("Address", "number", minor=True),
)
_DEPARTMENTS = (Column("Department"), Column("Sessions", "number"), Column("May have", "number"))
_SESSIONS = (
    Column("Session"),
    Column("Person"),
    Column("Node"),
    Column("For", "number"),
    Column("Since", "number", minor=True),
    Column("From", "number", minor=True),
)
_KINDS = {"ssh": "ssh", "ssm": "Session Manager", "tmux": "waiting tmux"}


def login_nodes_page(
    around: Frame, shown: LoginOverview, rules: Rules, now: int, node: str | None = None
) -> str:
    """The page.

    Args:
        now: Unix seconds, for how long sessions have been open.
        node: only its sessions are shown.
    """
    return render(
        "login_nodes.html",
        frame=around,
        title="Login nodes",
        own=_own(shown, rules),
        nodes=Table(
            "Login nodes",
            _NODES,
            tuple(_node(each, rules.policy) for each in shown.nodes),
            foot=_together(shown.nodes),
            empty="No login node has told anything yet: hp-login-agent runs on each, with a token of the "
            "scope login.",
        ),
        limits=_limits(rules),
        departments=Table("Sessions by department", _DEPARTMENTS, tuple(map(_department, shown.departments))),
        sessions=Table(
            "Open sessions",
            _SESSIONS,
            tuple(_session(each, now) for each in shown.sessions),
            empty="There is no session that you may see.",
        ),
        node=node,
        later=_later(shown, node),
    )


def _own(shown: LoginOverview, rules: Rules) -> str:
    if shown.own is None:
        return ""
    left = rules.per_user - shown.own
    more = f"you may open {left} more" if left > 0 else "to open another one, end one of them"
    return f"You have {shown.own} of the {rules.per_user} sessions that you may have: {more}."


def _node(known: KnownNode, policy: Policy) -> Row:
    node = known.node
    silence = _silence(node, policy)
    cpu, memory = (DASH, DASH) if silence else (_part(node.cpu), _part(node.memory))
    return (
        text(node.name, f"{PATH}?{urlencode({'node': node.name})}#sessions"),
        _state(known, silence),
        text(f"{known.sessions:,}", detail=_beside(known, policy.most_sessions)),
        text(f"{known.users:,}"),
        text(cpu, detail="" if silence else f"of {node.cpus:,}"),
        Cell() if silence else bar(Decimal(node.cpu), Decimal(1)),
        text(memory),
        text("" if known.address == node.name else known.address),
    )


def _beside(known: KnownNode, most: int | None) -> str:
    words = [f"of {most:,}"] if most is not None else []
    return ", ".join(words + ([f"{known.placed:,} on their way"] if known.placed else []))


def _silence(node: Node, policy: Policy) -> str:
    """For how long nothing was heard of it; empty when it tells."""
    if node.silent_for is None:
        return "never heard of"
    return f"silent for {duration(int(node.silent_for))}" if node.silent_for > policy.silent_after else ""


_STATES: Mapping[State, tuple[str, str]] = {
    "up": ("open", "good"),
    "full": ("full", "warn"),
    "closed": ("sshd refuses people", "bad"),
    "draining": ("drained", "warn"),
    "silent": ("silent", "bad"),
}


def _state(known: KnownNode, silence: str) -> Cell:
    said, tone = _STATES[known.state]
    lifted = "its limits are lifted" if known.unlimited else ""
    detail = "; ".join(filter(None, (known.why, silence, lifted)))
    return text(said, detail=detail, tone="warn" if lifted and tone == "good" else tone)


def _together(nodes: Sequence[KnownNode]) -> Row:
    if len(nodes) < 2:
        return ()
    taking = sum(each.state == "up" for each in nodes)
    sessions = sum(each.sessions for each in nodes)
    return (
        text("All"),
        text(f"{taking} of {len(nodes)} open"),
        text(f"{sessions:,}"),
        *(Cell(),) * 5,
    )


def _limits(rules: Rules) -> str:
    most = rules.policy.most_sessions
    of_node = f" A login node takes {most:,}." if most is not None else ""
    one = f"{rules.per_user:,} session{'' if rules.per_user == 1 else 's'}"
    return (
        f"Each person may have {one} on all login nodes together, by ssh and by Session Manager; a tmux that "
        f"nobody looks at does not count.{of_node} Administrators are not limited."
    )


def _department(each: DepartmentUse) -> Row:
    if each.limit is None:
        return (text(each.name), text(f"{each.sessions:,}"), text("no limit"))
    tone = "bad" if each.sessions >= each.limit else "warn" if each.sessions * 10 >= each.limit * 9 else ""
    return (text(each.name), text(f"{each.sessions:,}", tone=tone), text(f"{each.limit:,}"))


def _session(each: Session, now: int) -> Row:
    what = "is being ended" if each.ending else _KINDS.get(each.kind, each.kind)
    return (
        text(str(each.id), detail=what),
        text(each.user, detail="administrator, not counted" if each.administrator else each.department),
        text(each.node),
        text(duration(now - each.since)),
        text(minute_name(each.since)),
        text("" if each.kind == TMUX else each.origin or "unknown"),
    )


def _part(part: float) -> str:
    return percentage(Decimal(round(part * 100)))


def _later(shown: LoginOverview, node: str | None) -> str:
    if not shown.more:
        return ""
    words = {"node": node} if node is not None else {}
    return f"{PATH}?{urlencode({**words, 'after': shown.sessions[-1].id})}#sessions"

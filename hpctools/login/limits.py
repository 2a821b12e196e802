"""How many sessions somebody may have, over all login nodes: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LONGEST_LIST = 20


@dataclass(frozen=True)
class Open:
    """A session that is open.

    Attributes:
        claim: the node's own name of it; of ssh PID-START.
        origin: where it comes from; may be empty.
        kind: `ssh`, or `ssm` (Session Manager).
        since: seconds that it has been open.
        ending: it is to end, and counts until it has.
    """

    id: int
    node: str
    user: str
    claim: str
    origin: str
    kind: str
    since: float
    ending: bool = False


@dataclass(frozen=True)
class Limits:
    """What the site allows; None for no limit.

    Attributes:
        department: the user's; empty for people of none.
    """

    per_user: int | None
    department: str = ""
    per_department: int | None = None


@dataclass(frozen=True)
class Refused:
    """One session too many; what the user is told, what was counted, and whose limit it is."""

    message: str
    sessions: tuple[Open, ...]
    limit: Literal["person", "department"] = "person"


def decide(user: str, own: Sequence[Open], in_department: int, limits: Limits) -> Refused | None:
    """Refuse one session too many; None when it may begin.

    Args:
        own: the user's sessions, the new one not among them.
        in_department: those of all people of the user's department, the user's included.
    """
    if limits.per_user is not None and len(own) >= limits.per_user:
        head = f"{user}: you have {_count(len(own))} on the login nodes, and the limit is {limits.per_user}:"
        way_out = _way_out(own, len(own) - limits.per_user + 1)
        return Refused("\n".join([head, *describe(own), *way_out]), tuple(own))
    if limits.per_department is not None and in_department >= limits.per_department:
        head = (
            f"{user}: {limits.department} has {_count(in_department)} on the login nodes, and its limit is "
            f"{limits.per_department}."
        )
        way_out = _way_out(own, in_department - limits.per_department + 1)
        yours = ["Yours are:", *describe(own), *way_out] if own else ["None of them is yours."]
        return Refused("\n".join([head, *yours]), tuple(own), "department")
    return None


def describe(sessions: Sequence[Open]) -> list[str]:
    """A line for each session, the oldest first."""
    oldest = sorted(sessions, key=lambda each: (-each.since, each.id))
    lines = [f"  {_line(each)}" for each in oldest[:LONGEST_LIST]]
    more = len(oldest) - len(lines)
    return [*lines, f"  and {more} more"] if more else lines


def _line(each: Open) -> str:
    way = "Session Manager" if each.kind == "ssm" else each.origin or "an unknown address"
    ending = ", is being ended" if each.ending else ""
    return f"{each.id}: {each.node}, for {age(each.since)}, from {way}{ending}"


def _way_out(sessions: Sequence[Open], excess: int) -> list[str]:
    """What to do; nothing more where as many as have to go are being ended."""
    staying = [each for each in sessions if not each.ending]
    if 0 < excess <= len(sessions) - len(staying):
        return ["Please try again in some seconds, when it has ended."]
    oldest = max(staying, key=lambda each: (each.since, -each.id), default=None)
    return [f"To end one: log out there, or hp-login --end {oldest.id}"] if oldest else []


def _count(number: int) -> str:
    return f"{number} session{'' if number == 1 else 's'}"


def age(seconds: float) -> str:
    """How long, as people say it.

    >>> age(59), age(3700), age(200_000)
    ('59 s', '1 h 1 min', '2 d 7 h')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if hours == 0:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60} min" if days == 0 else f"{days} d {hours % 24} h"

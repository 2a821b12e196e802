"""What `hpctools login` prints for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from hpctools.login.limits import age
from hpctools.remote.names import shown


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns that are as wide as they must be; no rules, so that it can be cut.

    What a terminal would take for a command is shown as it is written: names and origins are other people's.
    """
    lines = [tuple(head), *(tuple(map(shown, row)) for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    told = ("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(f"{line.rstrip()}\n" for line in told)


def nodes(found: Sequence[Mapping[str, Any]]) -> str:
    """Login nodes, a line each."""
    if not found:
        return "No login node has told of itself yet: does hp-login-agent run there?\n"
    head = ("NODE", "STATE", "SESSIONS", "USERS", "CPU", "MEMORY", "HEARD", "WHY")
    return table(head, [_node(each) for each in found])


def _node(each: Mapping[str, Any]) -> tuple[str, ...]:
    ago = each["heard_seconds_ago"]
    heard = "never" if ago is None else f"{age(ago)} ago"
    why = "limits lifted" if each["unlimited"] and not each["why"] else each["why"]
    figures = (f"{each['sessions']}", f"{each['users']}", f"{each['cpu']:.0%}", f"{each['memory']:.0%}")
    return (each["name"], each["state"], *figures, heard, why)


def sessions(found: Sequence[Mapping[str, Any]], now: float) -> str:
    """Sessions, a line each."""
    if not found:
        return "No sessions.\n"
    head = ("SESSION", "USER", "NODE", "KIND", "FOR", "FROM", "")
    return table(head, [_session(each, now) for each in found])


def _session(each: Mapping[str, Any], now: float) -> tuple[str, ...]:
    begun = datetime.fromisoformat(each["since"].replace("Z", "+00:00")).timestamp()
    ending = "ending" if each["ending"] else ""
    words = (f"{each['id']}", each["user"], each["node"], each["kind"])
    return (*words, age(max(0.0, now - begun)), each["origin"], ending)


def ending(found: Sequence[Mapping[str, Any]]) -> str:
    """Sessions that will end."""
    lines = (f"session {each['id']} of {each['user']} on {each['node']} will end" for each in found)
    return "".join(f"{shown(line)}\n" for line in lines)


def status(found: Mapping[str, Any], now: float) -> str:
    """How one node stands, by its own agent."""
    drained = f" ({found['why']})" if found["draining"] and found["why"] else ""
    away = "" if found["service_answers"] else "The service does not answer this node.\n"
    head = f"{found['node']}: {found['state']}{drained}, CPU {found['cpu']:.0%}, memory {found['memory']:.0%}"
    rows = [
        (
            each["user"],
            each["kind"],
            age(max(0.0, now - each["since"])),
            each["origin"],
            ",".join(each["ttys"]),
        )
        for each in found["sessions"]
    ]
    return (
        f"{shown(head)}\n"
        + away
        + (table(("USER", "KIND", "FOR", "FROM", "TERMINALS"), rows) if rows else "No sessions.\n")
    )

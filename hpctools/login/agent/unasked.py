"""Sessions of Session Manager's while the service is away: it asks nobody, so the node's limit is kept here.

PAM keeps it for ssh before a session begins (docs/decisions/0182). Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from hpctools.login.agent.sessions import OpenSession
from hpctools.login.names import EVERYBODYS


def too_many(
    known: Collection[str], sessions: Iterable[OpenSession], limit: int, exempt: Callable[[str], bool]
) -> tuple[OpenSession, ...]:
    """Those that have just come and are more than a person may have on a node; the oldest of them stay.

    Args:
        known: keys of those that were there before: they stay, however many they are.
        sessions: all that are open now.
    """
    waiting = [each for each in sessions if each.kind == "ssm" and each.key not in known]
    new = {each.key for each in waiting}
    counts = Counter(each.user for each in sessions if each.key not in new)
    found = []
    for session in sorted(waiting, key=lambda each: (each.since, each.pid)):
        if session.user == EVERYBODYS or exempt(session.user) or counts[session.user] < limit:
            counts[session.user] += 1
        else:
            found.append(session)
    return tuple(found)


def farewell(node: str, limit: int) -> str:
    """What somebody is told whose session is one too many."""
    return (
        f"On {node} one person may have {limit} sessions, and you have others: this one will be ended in "
        "some seconds. The service that knows of other login nodes does not answer now."
    )

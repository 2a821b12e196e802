"""Sessions of Session Manager's, which asks nobody: what the node keeps of them that PAM keeps of ssh's.

That is the node's own limit while the service is away, and its drain (docs/decisions/0182). Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from hpctools.login.agent.sample import Sample
from hpctools.login.agent.sessions import OpenSession, detached
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


def turned_away(
    known: Collection[str],
    sample: Sample,
    was_drained: Callable[[float], bool],
    exempt: Callable[[str], bool],
) -> tuple[OpenSession, ...]:
    """Those that have just begun on a drained node, and whose owners had nothing there to come back to.

    Args:
        known: keys of those that stay, however they came.
        was_drained: whether the node took no sessions any more, so many seconds before the sample.
    """
    new = [each for each in sample.sessions if each.kind == "ssm" and each.key not in known]
    late = [each for each in new if was_drained(max(0.0, sample.now - each.since))]
    keys = {each.key for each in late}
    here = {each.user for each in sample.sessions if each.key not in keys}
    waiting = [(user, process.started) for process, user in detached(sample.processes)]
    return tuple(
        each
        for each in late
        if not (each.user in (EVERYBODYS, *here) or exempt(each.user))
        and not any(user == each.user and started < each.started for user, started in waiting)
    )


def farewell(node: str, limit: int) -> str:
    """What somebody is told whose session is one too many."""
    return (
        f"On {node} one person may have {limit} sessions, and you have others: this one will be ended in "
        "some seconds. The service that knows of other login nodes does not answer now."
    )

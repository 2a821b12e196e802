"""Nodes that the run's jobs must not get again, for a while or for ever, as its history tells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hpctools.elastic.actions import Depart, Prepare, ReplaceNode
from hpctools.elastic.folder import Event
from hpctools.slurm.types import Job

UNREADABLE = float(2**53)
NAMELESS = ("", "?")
"""What stood for the node of a worker without its agent; Slurm refuses a job that is to go without it."""


@dataclass(frozen=True)
class Span:
    """For how long a node is excluded, Unix seconds; without an end: for ever."""

    since: float
    until: float = math.inf


def add(spans: dict[str, Span], node: str, span: Span) -> None:
    """A node is excluded; from the first time on when it still was. One without a name is not."""
    if node in NAMELESS:
        return
    known = spans.get(node)
    if known is not None and known.until >= span.since:
        span = Span(min(known.since, span.since), max(known.until, span.until))
    spans[node] = span


def exclusions(events: Iterable[Event]) -> dict[str, Span]:
    """The nodes that were excluded, each with the last time that it was."""
    found: dict[str, Span] = {}
    for each in events:
        span = _span(_unix(each.time), each.detail) if each.event == "action" else None
        if span is not None:
            add(found, str(each.detail.get("node")), span)
    return found


def avoided(job: Job, excluded: Mapping[str, Span]) -> frozenset[str]:
    """Nodes that a job can be taken to be submitted without: those that were excluded then.

    Args:
        excluded: as of `exclusions`. Slurm's times are whole seconds.
    """
    at = job.submitted
    return frozenset(
        node for node, span in excluded.items() if at is not None and int(span.since) <= at < span.until
    )


def _span(time: float, detail: Mapping[str, Any]) -> Span | None:
    """For how long an action excludes its node; None: it does not."""
    action, seconds = detail.get("action"), detail.get("avoid_s")
    if action == ReplaceNode.__name__ and detail.get("exclude"):
        return Span(time)
    if action not in (Depart.__name__, Prepare.__name__) or not isinstance(seconds, (int, float)):
        return None
    return Span(time, time + seconds) if seconds > 0 and time < UNREADABLE else None


def _unix(time: str) -> float:
    """A time that cannot be read is later than every job: those that wait are submitted again."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return UNREADABLE

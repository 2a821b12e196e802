"""Nodes that the run's jobs must not get again, as its history tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from hpctools.elastic.actions import ReplaceNode
from hpctools.elastic.folder import Event
from hpctools.slurm.types import Job


def exclusions(events: Iterable[Event]) -> dict[str, float]:
    """The nodes that were excluded, each with the time of its first exclusion, Unix seconds."""
    found: dict[str, float] = {}
    for each in events:
        detail = each.detail
        if each.event == "action" and detail.get("action") == ReplaceNode.__name__ and detail.get("exclude"):
            found.setdefault(str(detail.get("node")), _unix(each.time))
    return found


def avoided(job: Job, excluded: Mapping[str, float]) -> frozenset[str]:
    """Nodes that a job can be taken to be submitted without: those that were excluded before.

    Args:
        excluded: as of `exclusions`. Slurm's times are whole seconds.
    """
    submitted = job.submitted
    return frozenset(
        node for node, since in excluded.items() if submitted is not None and submitted >= int(since)
    )


def _unix(time: str) -> float:
    """A time that cannot be read is later than every job: those that wait are submitted again."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return float(2**53)

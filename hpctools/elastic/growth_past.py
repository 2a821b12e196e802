"""What is known of a run's growing when another coordinator takes over, from what its folder tells.

`past_of` is pure; `read_past` gives it what the folder tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

from hpctools.elastic.folder import Event, RunFolder
from hpctools.elastic.growth import NEVER, Rate, Tenure
from hpctools.elastic.history import Moment
from hpctools.errors import ElasticError

TAKEN = ("preempted", "lost", "departed")
"""Reasons of an event `left` with which a node was taken from the run; else the run gave it up itself."""


@dataclass
class Past:
    """As `GrowthHistory` notes it; times on the clock of the coordinator that takes over, in seconds.

    Attributes:
        since: replicas' agents that had joined and not left, with the time of that.
        restarted: when the run last lost somebody or began again; its first start is none.
        has_begun: whether anybody has trained.
    """

    since: dict[str, float] = field(default_factory=dict)
    tenures: list[Tenure] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    growths: list[tuple[float, float | None]] = field(default_factory=list)
    rates: dict[int, Rate] = field(default_factory=dict)
    restarted: float = NEVER
    has_begun: bool = False


def read_past(folder: RunFolder, now: float) -> Past:
    """What the run's folder tells; nothing where it cannot be read.

    Args:
        now: on the coordinator's clock.
    """
    try:
        return past_of(folder.events(), folder.history(), now, datetime.now(timezone.utc))
    except ElasticError:
        return Past()


def past_of(events: Iterable[Event], moments: Iterable[Moment], now: float, utc: datetime) -> Past:
    """What earlier coordinators wrote about resizes, replicas and speed.

    Args:
        events, moments: oldest first.
        now, utc: the same moment, on the coordinator's clock and on the wall.
    """
    past, nodes = Past(), dict[str, str]()
    for event in events:
        at = _at(event.time, now, utc)
        if at is not None and event.event in _READERS:
            _READERS[event.event](past, nodes, event.detail, at)
    past.rates = _rates(moments, now, utc)
    return past


def _joined(past: Past, nodes: dict[str, str], detail: Mapping[str, Any], at: float) -> None:
    past.has_begun = True
    worker = str(detail.get("worker", ""))
    # r12.0.0 and r12.1.0.0 are workers; restart mode tells of agents: r12 and r12.1.
    agent = worker.rsplit(".", 2)[0] if worker.count(".") > 1 else worker
    if agent.startswith("r"):
        past.since.setdefault(agent, at)
        nodes[agent] = str(detail.get("node", ""))


def _left(past: Past, nodes: dict[str, str], detail: Mapping[str, Any], at: float) -> None:
    job, node = f"r{detail.get('job_id')}", detail.get("node")
    for agent in [each for each in past.since if each.split(".")[0] == job and nodes[each] == node]:
        stayed = max(0.0, at - past.since.pop(agent))  # the wall clock may have been set back since
        past.tenures.append(Tenure(stayed, detail.get("reason") in TAKEN, at))


def _resize(past: Past, nodes: dict[str, str], detail: Mapping[str, Any], at: float) -> None:
    before, after = detail.get("from"), detail.get("to")
    if (cost := _cost(detail)) is not None:
        past.pauses.append(cost)
    if detail.get("recovered"):
        past.restarted = at
    if not (isinstance(before, int) and isinstance(after, int)):
        return
    if after > before:
        past.growths.append((at, None))
    elif after < before and past.growths and past.growths[-1][1] is None:
        past.growths[-1] = (past.growths[-1][0], at)


def _cost(detail: Mapping[str, Any]) -> float | None:
    """Seconds that the change itself took; None where a wait for nodes cannot be told from it."""
    pause, phases = detail.get("pause_s"), detail.get("phases")
    waited = phases.get("wait") if isinstance(phases, dict) else None
    if not isinstance(pause, int | float) or (waited is None and detail.get("recovered")):
        return None
    return max(0.0, pause - (waited or 0.0))


def _resumed(past: Past, nodes: dict[str, str], detail: Mapping[str, Any], at: float) -> None:
    """No worker had the state any more; that the first ones found a checkpoint is no restart."""
    if past.has_begun:
        past.restarted = at


def _action(past: Past, nodes: dict[str, str], detail: Mapping[str, Any], at: float) -> None:
    if detail.get("action") == "RestartAll":
        past.restarted = at


_READERS: dict[str, Callable[[Past, dict[str, str], Mapping[str, Any], float], None]] = {
    "joined": _joined,
    "left": _left,
    "resize": _resize,
    "resumed": _resumed,
    "action": _action,
}


def _rates(moments: Iterable[Moment], now: float, utc: datetime) -> dict[int, Rate]:
    """Of each size what it trained between two moments that both had it."""
    found: dict[int, Rate] = {}
    for before, after in pairwise(moments):
        began, ended, speed = _at(before.time, now, utc), _at(after.time, now, utc), after.samples_per_second
        if began is None or ended is None or not speed or not 0 < before.size == after.size:
            continue
        rate, seconds = found.get(after.size, Rate(0.0, 0.0)), max(0.0, ended - began)
        found[after.size] = Rate(rate.samples + speed * seconds, rate.seconds + seconds)
    return found


def _at(time: str, now: float, utc: datetime) -> float | None:
    """A time of the folder on the coordinator's clock, not after `now`; None for a damaged line.

    Who wrote it may have had a clock that was fast, or that was set back since.
    """
    try:
        return now - max(0.0, (utc - datetime.fromisoformat(time)).total_seconds())
    except (ValueError, TypeError):
        return None

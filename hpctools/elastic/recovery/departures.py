"""Nodes that will be taken away, as watchers of the run: their workers leave at a step boundary, in time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from hpctools.elastic.actions import Action, Depart, Prepare
from hpctools.elastic.watchers import Report, View
from hpctools.errors import HpctoolsError
from hpctools.slurm.types import Node

LOOK_SECONDS = 10.0
# slurmctld sends all nodes of the cluster, and scontrol prints some (its info_node.c): one that takes long is
# asked for a hundredth of the time only. Of sinfo each node would be a question, and bring all partitions.
TIMES_AS_LONG = 100.0
LONGEST_LOOK_SECONDS = 120.0
SPOT_SECONDS = 120.0
LAST_SECONDS = 15.0
SAVE_SECONDS = 10.0  # before that: workers that wait parked cannot save a sharded model
GONE_SECONDS = 300.0  # after its end, until another instance may have a spot instance's name
REBALANCE_SECONDS = 600.0  # as long as a replica is taken to stay of which nothing is known
WORDS = {
    "spot": "the cloud takes its spot instance back",
    "rebalance": "the cloud expects to take its spot instance back",
    "drain": "it is drained",
}


@runtime_checkable
class NodeSource(Protocol):
    """Who knows the nodes of the cluster, as Slurm's clients do."""

    def nodes(self, names: Sequence[str] = ()) -> list[Node]:
        """Those of these names that Slurm knows; raises HpctoolsError when it does not answer."""
        ...


@dataclass
class _Notice:
    """What was said of a node.

    Attributes:
        until: when it is gone, on the clock of `now`; None: nobody said.
        prepared: how often the run was told that it will lose a node that it needs.
    """

    what: str
    until: float | None
    prepared: int = 0

    def left(self, now: float) -> float | None:
        """Seconds that there are."""
        return None if self.until is None else max(0.0, self.until - now)

    def preparations(self, now: float) -> int:
        """How often the run should have been told by now: at once, and shortly before the node departs."""
        left = self.left(now)
        return 1 if left is None or left > LAST_SECONDS + SAVE_SECONDS else 2

    def avoid(self, now: float) -> float:
        """For how long jobs must not get the node, seconds; what stands then is told again by who gets it."""
        left = self.left(now)
        return REBALANCE_SECONDS if left is None else left + GONE_SECONDS


class Notices:
    """Notices that agents report; a node departs as often as it is there while one stands.

    A node without which the run could only wait stays until there are others. One of which is said when it
    is gone then departs shortly before that, so that its workers leave in order.

    A notice is forgotten when the node has no agent any more: one that comes back tells it again, and another
    instance of that name has none.

    Args:
        least: workers without which the run waits.
    """

    def __init__(self, least: int) -> None:
        self._least = least
        self._notices: dict[str, _Notice] = {}

    def heard(self, now: float, report: Report) -> Sequence[Action]:
        """A notice has come; a second one of a node tells it better."""
        if report.kind == "notice":
            seconds = SPOT_SECONDS if report.what == "spot" and report.seconds is None else report.seconds
            notice = self._notices.setdefault(report.node, _Notice(report.what, None))
            if seconds is not None and (notice.until is None or report.seconds is not None):
                notice.what, notice.until = report.what, now + seconds
        return []

    def tick(self, now: float, view: View) -> Sequence[Action]:
        """Let go who may go, or has to."""
        self._notices = {node: each for node, each in self._notices.items() if node in view.nodes}
        found: list[Action] = []
        gone: set[str] = set()
        for node in [each for each in self._notices if each in view.staying]:
            notice = self._notices[node]
            left, why, avoid = notice.left(now), WORDS.get(notice.what, notice.what), notice.avoid(now)
            is_last_moment = left is not None and left <= LAST_SECONDS
            if is_last_moment or enough_without({*gone, node}, view, self._least):
                gone.add(node)
                found.append(Depart(node, left, why, avoid))
            elif notice.prepared < notice.preparations(now):
                notice.prepared = notice.preparations(now)
                found.append(Prepare(node, left, why, avoid))
        return found


def enough_without(gone: set[str], view: View, least: int) -> bool:
    """Whether enough workers stay that train, or are ready to, and whose agents live."""
    able = [each for each in view.members if (each.trains or each.ready) and not (each.leaves or each.mute)]
    return sum(each.node not in gone for each in able) >= least


class Drains:
    """Nodes of the run that somebody drains (`scontrol update NodeName=... State=DRAIN`).

    Slurm is asked every 10 seconds, or less often where it takes long to answer (`pause_after`), in a thread;
    when it does not answer, the next time. It lets jobs on a drained node run to their end, so the run keeps
    one that it needs to go on, until it has others.

    Args:
        least: workers without which the run waits.
        warn: is told of a node that is kept.
        in_thread: runs a function elsewhere.
        clock: by which it is measured how long Slurm takes.
    """

    def __init__(
        self,
        source: NodeSource,
        least: int,
        warn: Callable[[str], None],
        in_thread: Callable[[Callable[[], None]], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._least = least
        self._warn = warn
        self._in_thread = in_thread or _in_thread
        self._clock = clock
        self._drained: dict[str, str] = {}
        self._kept: set[str] = set()
        self._asking = False
        self._asked = -math.inf
        self._pause = LOOK_SECONDS
        self._took = 0.0

    def heard(self, now: float, report: Report) -> Sequence[Action]:
        """Nothing: Slurm is asked."""
        return []

    def tick(self, now: float, view: View) -> Sequence[Action]:
        """Ask when it is time; nodes that are drained and ours depart."""
        if now >= self._asked + self._pause and not self._asking and view.members:
            self._asked, self._asking = now, True
            try:
                self._in_thread(lambda: self._look(sorted(view.nodes)))
            except RuntimeError:  # the node has no thread left for now
                self._asking = False
        drained = dict(self._drained)
        self._kept &= drained.keys() & view.staying
        gone: set[str] = set()
        actions = (self._action(node, _why(drained[node]), view, gone) for node in sorted(drained))
        return [action for action in actions if action is not None]

    def _action(self, node: str, why: str, view: View, gone: set[str]) -> Action | None:
        """One node at a time, each counts on those that went before; who is needed is told so once."""
        if node not in view.staying:
            return None
        if enough_without({*gone, node}, view, self._least):
            gone.add(node)
            return Depart(node, None, why)
        if node in self._kept:
            return None
        self._kept.add(node)
        self._warn(f"{node} is drained; the run keeps it, since it could not go on without it")
        return Prepare(node, None, why)

    def _look(self, names: Sequence[str]) -> None:
        began, took = self._clock(), 0.0
        try:
            found = self._source.nodes(names)
            self._drained = {node.name: node.reason for node in found if "DRAIN" in node.flags}
            took = self._clock() - began
        except HpctoolsError:
            return  # Slurm is away: the nodes that were drained still are
        finally:
            # One answer may be late by chance, as when this machine stood still: the shorter of two counts.
            self._pause, self._took = pause_after(min(took, self._took)), took
            self._asking = False


def pause_after(seconds: float) -> float:
    """For how long Slurm is not asked again, counted from the question, when its answer took so long."""
    return min(max(LOOK_SECONDS, TIMES_AS_LONG * seconds), LONGEST_LOOK_SECONDS)


def _why(reason: str) -> str:
    return f"{WORDS['drain']}: {reason}" if reason else WORDS["drain"]


def _in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="elastic-drains", daemon=True).start()

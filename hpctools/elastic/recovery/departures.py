"""Nodes that will be taken away, as watchers of the run: their workers leave at a step boundary, in time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from hpctools.elastic.actions import Action, Depart
from hpctools.elastic.watchers import Report, View
from hpctools.errors import HpctoolsError
from hpctools.slurm.types import Node

LOOK_SECONDS = 10.0
WORDS = {
    "spot": "the cloud takes its spot instance back",
    "rebalance": "the cloud expects to take its spot instance back",
    "drain": "it is drained",
}


@runtime_checkable
class NodeSource(Protocol):
    """Who knows the nodes of the cluster, as Slurm's clients do."""

    def nodes(self) -> list[Node]:
        """All of them; raises HpctoolsError when Slurm does not answer."""
        ...


class Notices:
    """Notices that agents report; each node departs once."""

    def __init__(self) -> None:
        self._departed: set[str] = set()

    def heard(self, now: float, report: Report) -> Sequence[Action]:
        """A notice has come."""
        if report.kind != "notice" or report.node in self._departed:
            return []
        self._departed.add(report.node)
        return [Depart(report.node, report.seconds, WORDS.get(report.what, report.what))]

    def tick(self, now: float, view: View) -> Sequence[Action]:
        """Nothing: notices come with reports."""
        return []


class Drains:
    """Nodes of the run that somebody drains (`scontrol update NodeName=... State=DRAIN`).

    Slurm is asked every 10 seconds, in a thread; when it does not answer, the next time. It lets jobs on a
    drained node run to their end, so the run keeps one that it needs to go on, until it has others.

    Args:
        least: workers without which the run waits.
        warn: is told of a node that is kept.
        in_thread: runs a function elsewhere.
    """

    def __init__(
        self,
        source: NodeSource,
        least: int,
        warn: Callable[[str], None],
        in_thread: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._source = source
        self._least = least
        self._warn = warn
        self._in_thread = in_thread or _in_thread
        self._drained: dict[str, str] = {}
        self._departed: set[str] = set()
        self._kept: set[str] = set()
        self._asking = False
        self._next = 0.0

    def heard(self, now: float, report: Report) -> Sequence[Action]:
        """Nothing: Slurm is asked."""
        return []

    def tick(self, now: float, view: View) -> Sequence[Action]:
        """Ask when it is time; nodes that are drained and ours depart."""
        if now >= self._next and not self._asking and view.members:
            self._next, self._asking = now + LOOK_SECONDS, True
            self._in_thread(self._look)
        ours, drained = {member.node for member in view.members}, dict(self._drained)
        self._departed &= set(drained)
        self._kept &= set(drained)
        return [
            Depart(node, None, _why(drained[node]))
            for node in sorted((ours & set(drained)) - self._departed)
            if self._may_go(node, view)
        ]

    def _may_go(self, node: str, view: View) -> bool:
        """Whether enough workers stay; one node at a time, each counts on those that went before."""
        gone = {*self._departed, node}
        if sum(member.trains and member.node not in gone for member in view.members) >= self._least:
            self._departed.add(node)
            return True
        if node not in self._kept:
            self._kept.add(node)
            self._warn(f"{node} is drained; the run keeps it, since it could not go on without it")
        return False

    def _look(self) -> None:
        try:
            self._drained = {node.name: node.reason for node in self._source.nodes() if "DRAIN" in node.flags}
        except HpctoolsError:
            return  # Slurm is away: the nodes that were drained still are
        finally:
            self._asking = False


def _why(reason: str) -> str:
    return f"{WORDS['drain']}: {reason}" if reason else WORDS["drain"]


def _in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="elastic-drains", daemon=True).start()

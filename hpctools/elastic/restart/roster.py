"""The nodes that there are: which of them can run workers, and which have to go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpctools.elastic.deciding import SETTLE_SECONDS
from hpctools.elastic.growth import NEVER
from hpctools.elastic.restart.limits import Limits


@dataclass
class Node:
    """An agent that can run workers.

    Attributes:
        order: where it stands among the others; the first have rank 0 and stay longest.
        since: when it came.
        deadline: when its workers must have ended, because the node has to go; None: it stays.
    """

    order: tuple[int, ...]
    since: float
    deadline: float | None = None


class Roster:
    """All agents that are connected."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._nodes: dict[str, Node] = {}
        self._deadlines: dict[str, float] = {}  # of those that are about to come

    def __contains__(self, agent: str) -> bool:
        return agent in self._nodes

    def add(self, agent: str, order: tuple[int, ...], now: float) -> None:
        """An agent has come, or has come again; until when it has to go it may have said before."""
        known = self._nodes.get(agent)
        deadline = self._deadlines.pop(agent, None if known is None else known.deadline)
        self._nodes[agent] = Node(order, now, deadline)

    def remove(self, agent: str) -> bool:
        """An agent is gone; returns whether that was not foreseen."""
        node = self._nodes.pop(agent, None)
        return node is not None and node.deadline is None

    def must_leave(self, agent: str, deadline: float) -> bool:
        """A node has to go; returns whether that is new, or sooner than it was, and it is there."""
        node = self._nodes.get(agent)
        if node is None:
            self._deadlines[agent] = min(deadline, self._deadlines.get(agent, deadline))
            return False
        if node.deadline is not None and node.deadline <= deadline:
            return False
        node.deadline = deadline
        return True

    def wanted(self) -> tuple[str, ...]:
        """The members of the largest generation that can be, in rank order; empty: too few nodes."""
        staying = [agent for agent, node in self._nodes.items() if node.deadline is None]
        first = sorted(staying, key=lambda agent: self._nodes[agent].order)
        return tuple(first[: self._limits.largest_within(len(first))])

    def ready_at(self, before: int | None, lost_at: float) -> float:
        """When the nodes that there are have been waited for long enough.

        The policy's time for newcomers (scalingTimeoutInSeconds) is one of growth: nothing runs yet here.

        Args:
            before: nodes of the last generation; None: there was none.
            lost_at: when a node vanished last.
        """
        limits, wanted = self._limits, len(self.wanted())
        if wanted == limits.sizes[-1]:
            return NEVER
        if before is None:
            came = self.arrivals()
            return max(max(came) + SETTLE_SECONDS, min(came) + limits.first)
        return lost_at + limits.faulty if wanted < before else NEVER

    @property
    def staying(self) -> int:
        """How many there are that need not go."""
        return sum(node.deadline is None for node in self._nodes.values())

    def leavers(self) -> list[str]:
        """Those that have to go."""
        return [agent for agent, node in self._nodes.items() if node.deadline is not None]

    def stays(self, agent: str) -> bool:
        """Whether an agent is there and need not go."""
        node = self._nodes.get(agent)
        return node is not None and node.deadline is None

    def soonest(self, agents: Sequence[str]) -> float | None:
        """When the first of these must have gone; None: they all stay."""
        nodes = (self._nodes[each] for each in agents if each in self._nodes)
        return min((node.deadline for node in nodes if node.deadline is not None), default=None)

    def arrivals(self, except_for: Sequence[str] = ()) -> list[float]:
        """When the others came."""
        return [node.since for agent, node in self._nodes.items() if agent not in except_for]

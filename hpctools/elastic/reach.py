"""Whether a run's nodes reach each other at all, as an agent learns it by coordinating in vain.

Where they do not, as behind a firewall or with names that lead to the node itself, each agent finds nobody,
claims the next term, and is superseded by another one that finds nobody either: without an end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hpctools.elastic.earlier_terms import last_generation
from hpctools.elastic.folder import CoordinatorAddress, RunFolder
from hpctools.errors import ElasticError

Verdict = Literal["goes on", "leaves", "ends the run"]
FIRST_WAIT = 2.0  # twice as long after each further time: who is only slow has time to come
LONGEST_WAIT = 30.0
MOST_IN_VAIN = 4
# With very many nodes each has its turn rarely; sooner than agents stop to look for a coordinator.
IN_VAIN_FOR_LONG = 2
LONG_SECONDS = 45.0
REMEDY = (
    "let TCP through between compute nodes, and have each node's own name resolve to an address that the "
    "others reach (docs/elastic-site.md, The network)"
)


@dataclass(frozen=True)
class Part:
    """What an agent's node is for the run.

    Attributes:
        name: of the agent.
        is_enough: whether the run trains with this node alone.
        is_needed: whether it does not begin without this node.
    """

    name: str
    is_enough: bool = False
    is_needed: bool = False


def is_cut_off(in_vain: int, seconds: float) -> bool:
    """Whether it cannot be chance any more.

    Args:
        in_vain: how often we have coordinated until another one did, and nobody else had come.
        seconds: since the first time.
    """
    return in_vain >= MOST_IN_VAIN or (in_vain >= IN_VAIN_FOR_LONG and seconds >= LONG_SECONDS)


def verdict(part: Part, trains: bool, has_formed: Callable[[], bool]) -> Verdict:
    """What an agent does that is cut off.

    Args:
        trains: whether its workers compute.
        has_formed: whether anybody ever trained in this run.
    """
    if trains or part.is_enough:
        return "goes on"  # those that do not reach it leave
    return "ends the run" if part.is_needed and not has_formed() else "leaves"


class Reach:
    """What one agent knows of it.

    Counted is only a coordinator that has published where it listens, was superseded while it lived, and to
    which nobody but its own agent had come. One that dies is none, and who ever met another agent of the run,
    here or there, counts no more: coordinators may be lost one after the other.

    Args:
        trains: whether workers here compute.
    """

    def __init__(self, part: Part, trains: Callable[[], bool] = bool) -> None:
        self._part = part
        self._trains = trains
        self._met = False
        self._in_vain = 0
        self._since = 0.0
        self._own: CoordinatorAddress | None = None

    def meet(self) -> None:
        """We reach another agent of the run, or it us."""
        self._met, self._in_vain = True, 0

    def superseded(self, now: float, own: CoordinatorAddress) -> None:
        """Another one coordinates in place of the one beside us, which lives, and to which nobody else came.

        Args:
            own: where it listened.
        """
        if not self._met:
            self._own, self._since = own, self._since if self._in_vain else now
            self._in_vain += 1

    def is_cut_off(self, now: float) -> bool:
        """Whether we and the others have tried for long enough."""
        return is_cut_off(self._in_vain, now - self._since)

    @property
    def wait(self) -> float:
        """For how long at least a coordinator is looked for before the next term is claimed.

        Whoever trains, or does without the others, claims it at once: one that reaches nobody would soon take
        the state of the training for lost.
        """
        if not self._in_vain or self._part.is_enough or self._trains():
            return 0.0
        return min(FIRST_WAIT * 2.0 ** (self._in_vain - 1), LONGEST_WAIT)

    def judge(self, folder: RunFolder, now: float) -> Verdict:
        """What follows; reads the run's folder.

        Raises:
            ElasticError: that cannot be read.
        """
        if not self.is_cut_off(now):
            return "goes on"
        return verdict(self._part, self._trains(), lambda: last_generation(folder.events()) > 0)

    def words(self, folder: RunFolder) -> ElasticError:
        """What is said of it; reads the run's folder.

        Raises:
            ElasticError: that cannot be read.
        """
        name, other = self._part.name, folder.coordinator()
        there = f", and {name} gets no answer at {_spelled(other)}" if other else ""
        return ElasticError(
            f"the nodes of this run do not reach each other: in {self._in_vain} terms nobody but {name} "
            f"itself came to its coordinator, last at {_spelled(self._own)}{there}",
            REMEDY,
        )


def _spelled(address: CoordinatorAddress | None) -> str:
    return "?" if address is None else f"{address.host}:{address.port}"

"""What a new coordinator learns from the workers that come to it: whether all still train."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

ASSEMBLY_SECONDS = 1.0
MISSED_SECONDS = 0.3  # after the last one; all look for the new coordinator every tenth
FIRST_SECONDS = 5.0
AGENT_SECONDS = 2.0  # in which an agent comes that lives


@dataclass(frozen=True)
class Returned:
    """How a worker stands that comes to a coordinator it did not know, or had lost.

    Attributes:
        ready: whether it has asked to be let in.
        trains: whether it is in a generation's group, whole or broken.
        generation, rank, world: the one it is in, or was in last, its place and how many there are.
        completed: rounds that its state is the result of; -1: it has none.
        step: steps of them.
        seen: the highest number of a generation that it was told of.
        pending: whether it was told of a generation that it is to switch to, or to park for.
        broken: whether its group broke.
        done: whether it has done the last step.
        finished: whether it was told that the training is complete.
        left: whether it has switched out and waits for its release.
        roll_back: how far back it was told to go before a generation that it has not come to: `generation`,
            `to_step`, `skip`; empty: it was not.
        saves: whether its training saves by itself; None: it has not said so yet.
        shards: whether it holds a part of the state only, with which the rest is of no use.
    """

    ready: bool = False
    trains: bool = False
    generation: int = 0
    rank: int = 0
    world: int = 0
    completed: int = -1
    step: int = 0
    seen: int = 0
    pending: bool = False
    broken: bool = False
    done: bool = False
    finished: bool = False
    left: bool = False
    roll_back: Mapping[str, Any] = field(default_factory=dict)
    saves: bool | None = None
    shards: bool = False

    @classmethod
    def from_hello(cls, hello: Mapping[str, Any]) -> Returned:
        """As the worker's hello tells."""
        known = {each.name: hello[each.name] for each in fields(cls) if each.name in hello}
        return cls(**known)

    @property
    def engaged(self) -> bool:
        """Whether it takes part in the training, or was about to."""
        return self.trains or self.pending


@dataclass
class Assembly:
    """Who has come to a new coordinator so far.

    Args:
        began: when the coordinator took over, on its clock.
        completed: whether the coordinator before it has noted that all have done the last step.
    """

    began: float
    completed: bool = False
    workers: dict[str, Returned] = field(default_factory=dict)
    first: float | None = None
    last: float = 0.0

    def add(self, worker: str, returned: Returned, now: float) -> None:
        """A worker has come."""
        self.workers[worker] = returned
        self.last = now
        if self.first is None and returned.engaged:
            self.first = now

    def takes_anybody(self, now: float) -> bool:
        """Whether a worker is heard without its agent, which would have come by now if it lived."""
        return now - self.began >= AGENT_SECONDS

    def undisturbed(self) -> tuple[str, ...]:
        """The members, in rank order, of a generation that is whole and has nothing before it; or nobody."""
        training = {name: each for name, each in self.workers.items() if each.trains}
        generations = {each.generation for each in training.values()}
        disturbed = any(each.pending or each.broken or each.finished for each in self.workers.values())
        if disturbed or len(generations) != 1:
            return ()
        members = sorted(training, key=lambda name: training[name].rank)
        return tuple(members) if len(members) == training[members[0]].world else ()

    @property
    def newest(self) -> int:
        """Number of the newest generation that somebody trains in; 0: nobody trains."""
        return max((each.generation for each in self.workers.values() if each.trains), default=0)

    @property
    def roll_back(self) -> dict[str, Any]:
        """The newest roll back that somebody was told of and nobody trains behind; empty: none.

        Who has not trained since an earlier one still knows of it, and goes back by itself.
        """
        trained = self.newest
        known = [each.roll_back for each in self.workers.values() if each.roll_back]
        told = [each for each in known if int(each["generation"]) > trained]
        newest = dict(max(told, key=lambda each: int(each["generation"]), default={}))
        newest.pop("generation", None)
        return newest

    def is_complete(self, workers: Iterable[Returned]) -> bool:
        """Whether these workers have only their programs' ends before them."""
        return any(each.finished or (self.completed and each.trains) for each in workers)

    def training(self) -> tuple[tuple[str, ...], int]:
        """Who has come of the last generation, in rank order, and how many it had."""
        training = {name: each for name, each in self.workers.items() if each.trains}
        members = [name for name, each in training.items() if each.generation == self.newest]
        members.sort(key=lambda name: training[name].rank)
        return tuple(members), training[members[0]].world if members else 0

    def deadline(self, now: float, *, silent: int = 0, least: int = 1) -> float:
        """When to go on with those that are there.

        Args:
            silent: workers that run and have not come; after the last step one that ends its program may give
                no sign of life, and as long as nobody has come who did that step it is waited for.
            least: workers with which the training goes on at all.
        """
        if self.completed and silent and not any(each.trains for each in self.workers.values()):
            return now + ASSEMBLY_SECONDS
        if self.first is None:
            return self.began + FIRST_SECONDS
        latest = self.first + ASSEMBLY_SECONDS
        soon = not silent and self._misses_few(least)
        return min(latest, self.last + MISSED_SECONDS) if soon else latest

    def _misses_few(self, least: int) -> bool:
        """Whether most of one generation have come, who stand still because somebody is gone.

        Nothing else is under way. Without one of those that hold shards all go back to what is saved: each
        of these gets all the time.
        """
        members, world = self.training()
        engaged = [each for each in self.workers.values() if each.engaged]
        return (
            any(each.broken for each in engaged)
            and not any(each.pending or each.shards or each.generation < self.newest for each in engaged)
            and 2 * len(members) >= world > 0
            and len(members) >= least
        )

"""The three sides that are compared: what is wanted, what stands in the files, and what runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from hpctools.conf.plan.defaults import defaults
from hpctools.conf.plan.demand import Demand
from hpctools.conf.plan.meaning import Meaning
from hpctools.conf.plan.model import Need
from hpctools.conf.plan.shown import NodeStatus
from hpctools.conf.text import fold
from hpctools.slurm.types import Job
from hpctools.slurm.versions import Release, reconfigure_starts_anew

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Sides:
    """Everything that changes are found from.

    Attributes:
        cluster: the cluster's name.
        release: of the Slurm that runs.
        wanted: what the site wants.
        disk: what slurm.conf says; None when there is none, or none that can be understood.
        running: what slurmctld says that it runs; None when it does not answer.
        jobs: jobs in the queue.
        status: how each node does.
        demands: what jobs ask for or hold, by id.
        groups: the groups of people whose jobs wait, where they are known.
    """

    cluster: str
    release: Release
    wanted: Meaning
    disk: Meaning | None
    running: Meaning | None
    jobs: tuple[Job, ...] = ()
    status: Mapping[str, NodeStatus] = field(default_factory=dict)
    demands: Mapping[int, Demand] = field(default_factory=dict)
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def now(self) -> Meaning | None:
        """What there is: as it runs or, when nobody tells, as the files say."""
        return self.running or self.disk

    @property
    def anew(self) -> bool:
        """Whether a reconfigure starts every daemon anew."""
        return reconfigure_starts_anew(self.release)

    def default(self, key: str) -> str | None:
        """What a setting is that nobody states, by its key in lower case; None when it is not known."""
        return _defaults(self.release).get(key)

    def slurmds(self) -> tuple[str, ...]:
        """Nodes whose slurmd runs, as far as is known, and that stay; all that stay when nothing is known."""
        there = self.now.nodes if self.now else self.wanted.nodes
        return tuple(name for name in self.wanted.nodes if name in there and self._may_run(name))

    def _may_run(self, name: str) -> bool:
        state = self.status[name].state if name in self.status else ""
        return not any(word in state for word in ("POWERED_DOWN", "POWERING_DOWN", "FUTURE"))

    @cached_property
    def _known(self) -> dict[tuple[str, str], Any]:
        return {}

    def once(self, key: tuple[str, str], work: Callable[[], Answer]) -> Answer:
        """What `work` returns, worked out once for each key: partitions often have the same nodes."""
        if key not in self._known:
            self._known[key] = work()
        found: Answer = self._known[key]
        return found

    @cached_property
    def by_id(self) -> Mapping[int, Job]:
        """Jobs by their ids."""
        return {job.id: job for job in self.jobs}

    @cached_property
    def held(self) -> Mapping[str, tuple[Job, ...]]:
        """Jobs by the nodes that they hold."""
        found: dict[str, list[Job]] = {}
        for job in self.jobs:
            for name in job.nodes:
                found.setdefault(name, []).append(job)
        return {name: tuple(jobs) for name, jobs in found.items()}

    def jobs_on(self, nodes: Iterable[str]) -> tuple[Job, ...]:
        """Jobs that hold any of these nodes, each once."""
        found = (job for name in nodes for job in self.held.get(name, ()))
        return tuple({job.id: job for job in found}.values())


_known: dict[Release, dict[str, str]] = {}


def _defaults(release: Release) -> dict[str, str]:
    return _known.setdefault(release, defaults(release))


class Difference(NamedTuple):
    """How one value differs on the sides.

    Attributes:
        before: as it is now; None when nothing is stated.
        after: as it is wanted.
        loaded: whether what runs is right, so that only the file has to follow.
        written: whether the file is right, so that it only has to be loaded.
    """

    before: str | None
    after: str | None
    loaded: bool
    written: bool


def differ(
    wanted: str | None,
    disk: tuple[str | None] | None,
    running: tuple[str | None] | None,
    canonical: Callable[[str | None], str],
) -> Difference | None:
    """Compare one value; None when it is right on every side that is known.

    Args:
        wanted: as the site wants it; None when it states nothing.
        disk, running: as it is there, in a tuple; None when that side is not known.
        canonical: the canonical text of a value.
    """
    target = canonical(wanted)
    written = disk is not None and canonical(disk[0]) == target
    loaded = running is not None and canonical(running[0]) == target
    if (written or disk is None) and (loaded or running is None):
        return None
    if running is None or loaded:
        before = disk[0] if disk else None
    else:
        same = disk is not None and canonical(disk[0]) == canonical(running[0])
        before = disk[0] if disk and disk[0] is not None and same else running[0]
    return Difference(before, wanted, loaded, written)


def lighter(difference: Difference, need: Need) -> Need:
    """What it takes; nothing but the file when what runs is right already."""
    return Need.NOTHING if difference.loaded else need


def folded(names: Iterable[str]) -> str:
    """A folded host list."""
    return fold(names)

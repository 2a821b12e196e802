"""What there is: files on disk, what the daemons run, jobs in the queue."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace

from hpctools.conf.accounts import AccountTree
from hpctools.conf.plan.demand import Demand, Holder, Used
from hpctools.conf.plan.meaning import Meaning
from hpctools.conf.plan.reservations import Reservations
from hpctools.conf.plan.shown import NodeStatus, Shown
from hpctools.slurm.types import Job
from hpctools.slurm.versions import Release

# Derived from the rest, or from what jobs do.
_VOLATILE = {"totalcpus", "totalnodes", "tres", "billing"}

Known = tuple[AccountTree | None, tuple[str, ...]]
"""What slurmdbd knows, or None and why that is not known."""


@dataclass(frozen=True)
class OnDisk:
    """A configuration folder.

    Attributes:
        files: texts by path relative to the folder; also what slurm.conf includes, as it names it.
        written: when each was last written, Unix seconds.
        unreadable: paths that are there and cannot be read.
    """

    files: Mapping[str, str]
    written: Mapping[str, float] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Live:
    """What there is.

    Attributes:
        disk: the configuration folder.
        shown: what slurmctld says that it runs; None when it does not answer.
        accounts: what slurmdbd knows; None when it does not answer.
        jobs: jobs in the queue.
        demands: what they ask for or hold, by id; a job is missing when that is not known.
        used: what is used of limits on used time.
        release: of Slurm as it runs or, when slurmctld does not answer, as it is installed.
        unknown: what could not be read, and why, a line each.
        groups: the groups of people whose jobs wait, where they count and are known.
        later: waits for `accounts`, and for why they are not known, where slurmdbd has not answered yet.
        reservations: the accounts that each reservation names.
        queue_read: whether `jobs` are all there are; else slurmctld did not tell them.
    """

    disk: OnDisk
    shown: Shown | None
    accounts: AccountTree | None
    jobs: tuple[Job, ...]
    release: Release | None
    unknown: tuple[str, ...] = ()
    demands: Mapping[int, Demand] = field(default_factory=dict)
    used: Mapping[Holder, Used] = field(default_factory=dict)
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    later: Callable[[], Known] | None = None
    reservations: Reservations = field(default_factory=dict)
    queue_read: bool = True

    def complete(self) -> Live:
        """The same with slurmdbd's answers; waits for them."""
        if self.later is None:
            return self
        accounts, silence = self.later()
        return replace(self, accounts=accounts, unknown=(*self.unknown, *silence), later=None)

    @property
    def running(self) -> Meaning | None:
        """The configuration that slurmctld runs."""
        return self.shown.meaning if self.shown else None

    @property
    def status(self) -> Mapping[str, NodeStatus]:
        """How each node does."""
        return self.shown.status if self.shown else {}

    @property
    def digest(self) -> str:
        """A checksum of everything that a plan compares with: another one, and the plan may be wrong.

        Jobs, the state of nodes and times are not part of it.
        """
        parts = (
            sorted(self.disk.files.items()),
            _summary(self.running),
            _summary_of_accounts(self.accounts),
            sorted(self.unknown),
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def _summary_of_accounts(tree: AccountTree | None) -> object:
    """The tree with its sets in an order that is the same in every process."""
    if tree is None:
        return None
    parts = {each.name: getattr(tree, each.name) for each in fields(tree)}
    beside = [getattr(tree.beside, each.name) for each in fields(tree.beside)]
    return {**parts, "beside": list(map(sorted, beside)), "unread": sorted(tree.unread)}


def _summary(running: Meaning | None) -> object:
    if running is None:
        return None
    shapes: dict[int, str] = {}
    nodes = [
        (name, shapes.setdefault(id(node.shape), repr(sorted(node.shape.items()))), node[1:])
        for name, node in sorted(running.nodes.items())
    ]
    partitions = [
        (name, sorted((key, value) for key, value in raw.items() if key not in _VOLATILE))
        for name, raw in sorted(running.partitions.items())
    ]
    return sorted(running.settings.items()), nodes, partitions

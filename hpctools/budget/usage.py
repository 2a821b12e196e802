"""What jobs used of their nodes: shares of a node over time, cut at UTC midnights.

Everything is counted in whole nano-node-seconds: a job that holds a full node for one second used 10**9.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Generic, TypeVar

from hpctools.budget.month import DAY_SECONDS, Month, day_of, day_start
from hpctools.budget.tree import BudgetSite, NodeGroup, Weights
from hpctools.slurm.accounting import JobRecord, expand

NANO = 10**9

Job = TypeVar("Job")

Place = tuple[str, date]
"""A node group on a day."""


@dataclass(frozen=True, order=True)
class JobKey:
    """What makes a job unique for ever (job ids are recycled, accounting indices are not).

    Attributes:
        running: it had not ended when it was read, so its use may still grow.
    """

    cluster: str
    dbindex: int
    job_id: int
    account: str
    user: str
    running: bool = False


Usage = dict[Place, dict[JobKey, int]]
"""Nano-node-seconds of each job, for each node group and day."""


@dataclass(frozen=True)
class Hold(Generic[Job]):
    """A share of one node, held by one job from `start` to `end` (Unix seconds)."""

    start: int
    end: int
    share: int
    job: Job


def measure(jobs: Iterable[JobRecord], site: BudgetSite, month: Month, as_of: int) -> Usage:
    """What each job used of each compute node group on each day of a month.

    A job's share of a node is the largest of its fractions of the node's processors, memory and GPUs (or
    shards of GPUs), each as the site weighs it. Where shares of one node add up to more than the node
    (over-subscription), they are scaled to it. Time in which a job was suspended counts: it kept its memory
    and GPUs.

    Args:
        jobs: in any order, each once; intervals are clipped to the month and to `as_of`.
        as_of: Unix seconds of the moment that running jobs are counted to.

    Returns:
        only what is above zero; nodes that no compute group has are left out.
    """
    window = day_start(month.start), min(day_start(month.end), as_of)
    usage: Usage = {}
    for node, holds in holds_of(jobs, site, window).items():
        group = site.group_of_node[node].name
        for day, job_key, amount in sweep(holds):
            cell = usage.setdefault((group, day), {})
            cell[job_key] = cell.get(job_key, 0) + amount
    return usage


def holds_of(
    jobs: Iterable[JobRecord], site: BudgetSite, window: tuple[int, int]
) -> dict[str, list[Hold[JobKey]]]:
    """What jobs held of each compute node within a time (Unix seconds)."""
    by_node: defaultdict[str, list[Hold[JobKey]]] = defaultdict(list)
    for job in jobs:
        for node, hold in _holds(job, site, window):
            by_node[node].append(hold)
    return dict(by_node)


def _holds(job: JobRecord, site: BudgetSite, window: tuple[int, int]) -> Iterator[tuple[str, Hold[JobKey]]]:
    if job.start is None:
        return
    start = max(job.start, window[0])
    end = min(window[1] if job.end is None else job.end, window[1])
    if end <= start:
        return
    key = JobKey(job.cluster, job.dbindex, job.job_id, job.account, job.user, running=job.end is None)
    nodes = expand(job.nodes)
    groups = [site.group_of_node.get(node) for node in nodes]
    for node, group, share in zip(nodes, groups, shares(job, groups, site.weights), strict=True):
        if group is not None and group.role == "compute" and share:
            yield node, Hold(start, end, share, key)


def shares(job: JobRecord, groups: Sequence[NodeGroup | None], weights: Weights) -> list[int]:
    """A job's share (of NANO) of each of its nodes.

    sacct tells what a job got in all, not on which node: it is taken as spread evenly, or, where that would
    not fit on one of the nodes, in proportion to the nodes' sizes.
    """
    result = [0] * len(groups)
    for got, sizes, weight in (
        (job.cpus, [group.cpus if group else 0 for group in groups], weights.cpu),
        (job.memory_mb, [group.memory_mb if group else 0 for group in groups], weights.memory),
        (job.gpus, [group.gpus if group else 0 for group in groups], weights.gpu),
        (job.shards, [group.shards if group else 0 for group in groups], weights.gpu),
    ):
        counted = [share * weight // 100 for share in _spread(got, sizes)]
        result = [max(pair) for pair in zip(result, counted, strict=True)]
    return result


def _spread(got: int, sizes: Sequence[int]) -> list[int]:
    if not got or not any(sizes):
        return [0] * len(sizes)
    fits_evenly = all(got <= size * len(sizes) for size in sizes)
    if fits_evenly:
        return [got * NANO // (size * len(sizes)) for size in sizes]
    proportional = min(NANO, got * NANO // sum(sizes))
    return [proportional if size else 0 for size in sizes]


def sweep(holds: Sequence[Hold[Job]]) -> Iterator[tuple[date, Job, int]]:
    """Use of one node, piece by piece between the moments at which its set of jobs or the day changes."""
    starts = sorted(holds, key=lambda hold: hold.start)
    moments = sorted({t for hold in holds for t in (hold.start, hold.end)} | _midnights(holds))
    active: list[Hold[Job]] = []
    position = 0
    for begin, end in pairwise(moments):
        while position < len(starts) and starts[position].start <= begin:
            active.append(starts[position])
            position += 1
        active = [hold for hold in active if hold.end > begin]
        full = max(NANO, sum(hold.share for hold in active))
        for hold in active:
            yield day_of(begin), hold.job, hold.share * NANO * (end - begin) // full


def _midnights(holds: Sequence[Hold[Job]]) -> set[int]:
    first = min(hold.start for hold in holds)
    last = max(hold.end for hold in holds)
    return set(range(first - first % DAY_SECONDS + DAY_SECONDS, last, DAY_SECONDS))

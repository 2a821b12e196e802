"""What a run's replica jobs are in Slurm's terms: pure functions on the run's description.

Replica job k makes a run of `sizes[k]` nodes one of `sizes[k + 1]`, so it has the difference. Where all have
the same number of nodes, each is as good as another. Where they differ, one is of use only when those before
it are there: a nice value lets Slurm start them in that order, and as the later ones are then the younger
ones, `preempt_youngest_first` takes the last step first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence

from hpctools.elastic.policy import ElasticPolicy
from hpctools.elastic.spec import RunSpec
from hpctools.slurm.states import is_waiting
from hpctools.slurm.types import Job

SPARE_MINUTES = 2
DEFAULT_NICE = 100  # of sbatch's --nice without a value
_NICE = re.compile(r"--nice(?:=(-?\d+))?")


def sbatch_options(
    spec: RunSpec, replica: int, *, minutes: int | None = None, excluded: Collection[str] = ()
) -> tuple[str, ...]:
    """sbatch's options for one of the run's replica jobs.

    Args:
        replica: which one, from 0.
        minutes: what is left of the run's time limit; None: no limit, or an unknown one.
        excluded: names of nodes that it must not get.
    """
    options = spec.replica_options
    found = (f"--nodes={spec.replica_nodes[replica]}", *_order(spec, replica))
    if minutes is not None:
        found = (*found, f"--time={_within(options, minutes)}")
    return (*options, *found, *_exclusion(options, excluded))


def is_replica(job: Job, spec: RunSpec) -> bool:
    """Whether a job of the run's user is one of the run's replica jobs."""
    return job.comment == f"hp-run:{spec.id}" and job.qos in _given(spec.replica_options, "qos")


def waits_for_others(nodes: Sequence[int], replica: int, served: Collection[int]) -> bool:
    """Whether a replica job is submitted only when larger ones before it serve.

    Slurm could start it before them, in a gap in which they do not fit, and there it would be of no use.

    Args:
        nodes: of each replica job.
        served: replica jobs that take part in the run.
    """
    return any(nodes[each] > nodes[replica] and each not in served for each in range(replica))


def surplus(policy: ElasticPolicy, nodes: Mapping[int, int]) -> int | None:
    """A job without which the run would have the same size; the youngest; None when all are of use.

    Args:
        nodes: of each running replica job, by its id.
    """
    total = policy.minimum + sum(nodes.values())
    size = policy.largest_within(total)
    idle = (job for job, count in nodes.items() if policy.largest_within(total - count) == size)
    return max(idle, default=None)


def minutes_left(end: float | None, now: float) -> int | None:
    """Whole minutes to the run's end, rounded up, since Slurm's limits are minutes; None when it has none.

    Args:
        end, now: Unix seconds.
    """
    return None if end is None else max(0, math.ceil((end - now) / 60))


def another_baseline(
    spec: RunSpec, end: float | None, now: float, excluded: Collection[str] = ()
) -> tuple[str, ...]:
    """sbatch's options for a baseline job in a lost one's place: the run's time is not longer for that.

    Args:
        end: when Slurm would have ended the lost one, Unix seconds; None: never, or not known.
        excluded: names of nodes that it must not get.
    """
    left, options = minutes_left(end, now), spec.baseline_options
    time = () if left is None else (f"--time={max(1, left)}",)
    return (*options, *time, *_exclusion(options, excluded))


def end_of(job: Job) -> float | None:
    """When Slurm will end a job, Unix seconds; None when it does not run or has no limit."""
    if job.started is None or job.time_limit is None or is_waiting(job.state):
        return None
    return job.started + 60.0 * job.time_limit


def shorter_limit(job: Job, end: float, now: float) -> int | None:
    """The time limit with which a replica job ends with its run; None when it has one that is short enough.

    One that waits is looked at with a margin: its limit matters only to the scheduler, which starts a shorter
    job sooner (backfill), and each change costs slurmctld a little.

    Args:
        end: of the run, Unix seconds.

    Returns:
        Minutes, at least 1.
    """
    if job.started is not None:
        limit, margin = max(1, math.ceil((end - job.started) / 60)), 0
    else:
        limit = max(1, math.ceil((end - now) / 60))
        margin = max(SPARE_MINUTES, limit // 10)
    return limit if job.time_limit is None or job.time_limit > limit + margin else None


def _order(spec: RunSpec, replica: int) -> tuple[str, ...]:
    if len(set(spec.replica_nodes)) < 2:
        return ()
    own = [found for option in spec.replica_options if (found := _NICE.fullmatch(option))]
    nice = int(own[-1][1] or DEFAULT_NICE) if own else 0
    return (f"--nice={nice + replica}",)


def _within(options: Sequence[str], minutes: int) -> int:
    """The run's minutes, or fewer where the replica jobs have a limit of their own."""
    own = [int(value) for value in _given(options, "time") if value.isdecimal()]
    return min([minutes, *own[-1:]])


def kept_off(options: Sequence[str], excluded: Collection[str]) -> tuple[str, ...]:
    """What a job must not get: host lists that its options exclude, and the names of excluded nodes."""
    return (*_given(options, "exclude"), *sorted(excluded))


def _exclusion(options: Sequence[str], excluded: Collection[str]) -> tuple[str, ...]:
    return (f"--exclude={','.join(kept_off(options, excluded))}",) if excluded else ()


def _given(options: Sequence[str], name: str) -> list[str]:
    found = [option.partition("=")[2] for option in options if option.startswith(f"--{name}=")]
    return found[-1:]

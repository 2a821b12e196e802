"""Why a run has no more nodes than it has: from its policy, its jobs in the queue, and its own decisions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from hpctools.elastic.exclusions import exclusions
from hpctools.elastic.folder import Event, RunStatus
from hpctools.slurm.states import is_waiting

# What Slurm's most frequent reasons mean for a person (squeue(1), JOB REASON CODES); the others speak for
# themselves, or are in that page.
_REASONS = {
    "None": "the scheduler looks at it next",
    "Priority": "more urgent jobs come first",
    "Resources": "no node is free for it",
    "Licenses": "no license is free",
    "BeginTime": "its time to begin has not come",
    "ReqNodeNotAvail": "a node that it asks for is down, drained or reserved",
    "Nodes required for job are DOWN": (  # how a whole sentence begins; what follows differs by release
        "nodes that it could have are down, drained, or kept for more urgent jobs"
    ),
    "PartitionTimeLimit": "it asks for more time than its partition gives",
    "JobHeldUser": "it is held: scontrol release",
    "JobHeldAdmin": "an administrator holds it",
}
_LAST_SECONDS = 60.0  # of a run's time, in which no replica job is submitted
_SUBMITTING = ("cannot submit a replica job", "no more replicas")
_LIMIT_WORDS = ("QOS", "Assoc", "MaxJobs", "MaxCpu", "MaxGRES", "MaxNode")


class JobLike(Protocol):
    """A job of the run that has not ended."""

    @property
    def id(self) -> int: ...  # noqa: D102
    @property
    def role(self) -> str: ...  # noqa: D102
    @property
    def state(self) -> str: ...  # noqa: D102
    @property
    def reason(self) -> str: ...  # noqa: D102
    @property
    def nodes(self) -> tuple[str, ...]: ...  # noqa: D102


def why_not_larger(
    status: RunStatus,
    jobs: Sequence[JobLike],
    events: Sequence[Event],
    sizes: Sequence[int] = (),
    *,
    now: float = 0.0,
    end: float | None = None,
    workers_per_node: int = 1,
) -> tuple[str, ...]:
    """What keeps a run from more nodes, each as a clause; empty when it is over.

    Of one that starts, at first or again, only what its jobs and nodes tell.

    Args:
        jobs: those of the run that have not ended.
        events: all of the run, oldest first.
        sizes: totals of nodes that the run may have, ascending; empty: any.
        now: Unix seconds.
        end: when its time is up, Unix seconds; None: never, or not known.
        workers_per_node: on each node of each of its jobs, which may meet on one machine.
    """
    if status.state not in ("running", "starting"):
        return ()
    workers = status.world_size or len(status.nodes) * workers_per_node
    if workers >= status.max_nodes * workers_per_node > 0:
        return (f"{status.max_nodes} nodes are the most that it may have",)
    begun = _standing_by(status, jobs, sizes) or tuple(_on_their_way(status, jobs))
    if status.state == "starting":
        return (*_waiting(jobs), *begun, *_left_out(events, now))
    return (*_waiting(jobs), *begun, *_own_decision(events), *_left_out(events, now)) or (
        _nothing_known(jobs, events, None if end is None else end - now),
    )


def _waiting(jobs: Sequence[JobLike]) -> Iterator[str]:
    """Pending replica jobs, those with the same reason together."""
    by_reason: dict[str, list[int]] = {}
    for job in jobs:
        if is_waiting(job.state) and job.role == "replica":
            by_reason.setdefault(job.reason, []).append(job.id)
    for reason, ids in by_reason.items():
        several = len(ids) > 1
        who = f"{len(ids)} replica jobs wait" if several else f"replica job {ids[0]} waits"
        yield f"{who}: {explained(reason)}"


def explained(reason: str) -> str:
    """Slurm's reason for which a job waits, with what it means where that is not plain."""
    word = reason.partition(",")[0]
    if word in _REASONS:
        meaning = _REASONS[word]
        return meaning if word == "None" or " " in word else f"{meaning} ({word})"
    if word.startswith(_LIMIT_WORDS):
        return f"a limit of its account or QoS ({word})"
    return word


def _standing_by(status: RunStatus, jobs: Sequence[JobLike], sizes: Sequence[int]) -> tuple[str, ...]:
    """Nodes that the run has and of which no allowed size is made."""
    idle = [node for job in _begun(jobs) for node in job.nodes if node not in status.nodes]
    trains, possible = len(status.nodes), len(status.nodes) + len(idle)
    if not idle or not sizes or trains not in sizes or any(trains < size <= possible for size in sizes):
        return ()
    larger = next(size for size in sizes if size > trains)
    return (f"the next size that is allowed is {larger} nodes; until then {' '.join(idle)} will not train",)


def _begun(jobs: Sequence[JobLike]) -> list[JobLike]:
    return [job for job in jobs if job.role == "replica" and job.state in ("RUNNING", "CONFIGURING")]


def _on_their_way(status: RunStatus, jobs: Sequence[JobLike]) -> Iterator[str]:
    """Replicas that Slurm has started and that do not train yet."""
    for job in _begun(jobs):
        idle = [node for node in job.nodes if node not in status.nodes]
        if idle:
            yield f"replica job {job.id} has begun on {' '.join(idle)} and does not train yet"


def _own_decision(events: Sequence[Event]) -> Iterator[str]:
    """What the run itself has decided since it last changed its size, or its coordinator.

    A change is told some steps after it was made, and so after a decision at the new size. One that was
    undone before that is told with the next one, and without a pause.
    """
    change: Event | None = None
    for event in reversed(events):
        if event.event == "resize" and change is not None and "pause_s" not in event.detail:
            continue
        if event.event == "takeover" or (event.event == "resize" and change is not None):
            return
        if event.event == "resize":
            change = event
        if event.event == "decision":
            if _is_of(event, change) and not event.detail.get("grow", True) and _could(event.detail):
                yield _with_numbers(event.detail)
            return


def _is_of(decision: Event, change: Event | None) -> bool:
    """Whether a decision was made at the size to which a change that was told after it led."""
    return change is None or decision.detail.get("world", 0) == change.detail.get("to")


def _could(detail: Mapping[str, Any]) -> bool:
    """Whether there were workers to grow by; a decision that does not say is about some."""
    world, possible = detail.get("world"), detail.get("possible")
    return not (isinstance(world, int) and isinstance(possible, int)) or possible > world


def _with_numbers(detail: Mapping[str, Any]) -> str:
    why = str(detail.get("why") or detail.get("reason") or "it decided not to grow")
    numbers = detail.get("numbers")
    if not isinstance(numbers, dict) or not numbers:
        return why
    return f"{why} ({', '.join(f'{name} {_short(value)}' for name, value in numbers.items())})"


def _short(value: object) -> str:
    return format(value, ".3g") if isinstance(value, float) else str(value)


def _left_out(events: Sequence[Event], now: float) -> Iterator[str]:
    """Nodes that the run must not get again, or not yet."""
    spans = exclusions(events)
    failed = [node for node, span in spans.items() if span.until == math.inf]
    noticed = [node for node, span in spans.items() if now < span.until < math.inf]
    if failed:
        yield f"nodes that failed are left out: {' '.join(failed)}"
    if noticed:
        yield f"nodes that will be taken away are left out for a while: {' '.join(noticed)}"


def _nothing_known(jobs: Sequence[JobLike], events: Sequence[Event], left: float | None) -> str:
    """What is left to say.

    Args:
        left: seconds of the run's time; None: it has no end, or that is not known.
    """
    if not jobs:
        return "the queue does not show its replica jobs"
    if left is not None and left <= _LAST_SECONDS:
        return "in the last minute of its time no replica jobs are submitted"
    return _complaint(events) or (
        "its next replica job is not in the queue yet: it is submitted within a minute, or when the nodes of "
        "one that was preempted have gone"
    )


def _complaint(events: Sequence[Event]) -> str:
    """Why the coordinator in office submits no replica job; empty: it has done so since, or did not say."""
    for event in reversed(events):
        is_replica = event.event == "submitted" and event.detail.get("role") == "replica"
        if is_replica or event.event == "takeover":
            return ""
        message = str(event.detail.get("message", ""))
        if event.event == "warning" and message.startswith(_SUBMITTING):
            return message
    return ""

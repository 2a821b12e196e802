"""One run as one thing: what its folder says and what the queue says, put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpctools.elastic.folder import FINAL_STATES, Event, JobRecord, RunStatus
from hpctools.elastic.spec import RunSpec
from hpctools.elastic_qos import ELASTIC_QOS
from hpctools.slurm.states import is_waiting
from hpctools.slurm.types import Job
from hpctools.submit.course import kind_of, not_preempted
from hpctools.submit.larger import why_not_larger
from hpctools.submit.queue import is_over, of_run

_OVER_STATES = (*FINAL_STATES, "lost")
_AT_WORK = ("RUNNING", "CONFIGURING")


@dataclass(frozen=True)
class JobView:
    """One Slurm job of a run.

    Attributes:
        role: `baseline` or `replica`.
        reason: why it is pending; `None` otherwise.
    """

    id: int
    role: str
    state: str
    reason: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Preemption:
    """A replica that had to give its node to somebody.

    Attributes:
        time: ISO 8601, UTC.
        by: job_id, user, account and qos of whoever took the node; empty while unknown.
    """

    time: str
    job_id: int | None
    node: str
    by: dict[str, Any]


@dataclass(frozen=True)
class Overview:
    """A run at a glance.

    Attributes:
        state: that of the run (starting, running, finished, failed, cancelled), or `pending` while its
            baseline job waits, or `lost` when that job is gone and nobody could say so.
        note: what a person should know about the state.
        status: as the coordinator last wrote it; without nodes and workers when the run is over.
        jobs: those that the queue still shows as not ended, by id.
        ended_jobs: how many others the run had.
        preemptions: oldest first.
        not_larger: what keeps it from more nodes, each as a clause; empty when it is over, or not begun.
    """

    id: str
    name: str
    user: str
    state: str
    note: str
    created: str
    status: RunStatus
    jobs: tuple[JobView, ...]
    ended_jobs: int
    preemptions: tuple[Preemption, ...]
    not_larger: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in _OVER_STATES


def overview(
    spec: RunSpec,
    status: RunStatus | None,
    records: Sequence[JobRecord],
    events: Sequence[Event],
    queue: Sequence[Job] | None,
    *,
    now: float = 0.0,
    end: float | None = None,
) -> Overview:
    """Put a run together.

    Args:
        queue: the user's jobs; None when the controller does not answer.
        now, end: this moment, and when the run's time is up (None: never, or not known), Unix seconds.
    """
    roles = {record.job_id: record.role for record in records}
    mine = of_run(queue or (), spec.id, records)
    views = [_job(job, roles) for job in mine]
    state, note = _state(status, roles, views, known=queue is not None)
    if state == "starting" and status is not None and spec.mode == "live":
        note = note or "no worker has come to its elastic.Loader yet"
    active = tuple(view for view, job in zip(views, mine, strict=True) if not is_over(job))
    known = status or RunStatus("starting", min_nodes=spec.min_nodes, max_nodes=spec.max_nodes)
    per_node = spec.workers_per_node
    why = why_not_larger(
        known, active, events, spec.allowed_sizes, now=now, end=end, workers_per_node=per_node
    )
    if state not in ("running", "starting"):
        why = ()
    if state in _OVER_STATES:
        # Its last status was written while the workers went one after the other.
        known = replace(known, nodes=(), world_size=0)
    return Overview(
        id=spec.id,
        name=spec.name,
        user=spec.user,
        state=state,
        note=note,
        created=spec.created,
        status=known,
        jobs=active,
        ended_jobs=len({*roles, *(view.id for view in views)}) - len(active),
        preemptions=tuple(_preemptions(events)),
        not_larger=why,
    )


def _job(job: Job, roles: dict[int, str]) -> JobView:
    role = roles.get(job.id) or ("replica" if job.qos == ELASTIC_QOS else "baseline")
    return JobView(job.id, role, job.state, job.reason, job.nodes)


def _state(
    status: RunStatus | None, roles: dict[int, str], jobs: Sequence[JobView], *, known: bool
) -> tuple[str, str]:
    if status is not None and status.state in FINAL_STATES:
        return status.state, status.message
    written = status.state if status else "starting"
    if not known:
        return written, "slurmctld does not answer, so this is what the run itself last wrote"
    # A run may have had several: where one was lost, another one was submitted.
    baselines = [job for job in reversed(jobs) if job.role == "baseline"]
    newest = next(iter(baselines), None)
    baseline = next((job for job in baselines if job.state in _AT_WORK), newest)
    recorded = [str(job_id) for job_id, role in roles.items() if role == "baseline"]
    lost = ""
    if baseline is None:
        lost = f"its baseline job {' '.join(recorded[-1:])} is no longer in the queue".replace("  ", " ")
    elif is_over(baseline):
        lost = f"its baseline job {baseline.id} ended as {baseline.state}"
    goes_on = any(job.role == "replica" and job.state == "RUNNING" for job in jobs)
    if lost:
        return (
            (written, f"{lost}; its replicas go on, and another one is submitted")
            if goes_on
            else ("lost", lost)
        )
    if baseline is not None and is_waiting(baseline.state):
        waits = f"its baseline job {baseline.id} waits: {_reason(baseline)}"
        return (written, f"{waits}; its replicas go on") if goes_on else ("pending", waits)
    message = status.message if status is not None else ""
    if newest and baseline and newest is not baseline and is_waiting(newest.state):
        follows = f"baseline job {newest.id}, which is to take the place of {baseline.id}, waits"
        message = "; ".join(filter(None, (message, f"{follows}: {_reason(newest)}")))
    return written, message


def _reason(job: JobView) -> str:
    return "the scheduler looks at it next" if job.reason == "None" else job.reason


def _preemptions(events: Sequence[Event]) -> list[Preemption]:
    others = not_preempted(events)
    named = {event.detail.get("job_id"): event.detail for event in events if event.event == "preempted_by"}
    return [
        Preemption(
            time=event.time,
            job_id=event.detail.get("job_id"),
            node=str(event.detail.get("node", "")),
            by=_preemptor(event.detail) or _preemptor(named.get(event.detail.get("job_id"), {})),
        )
        for event in events
        if kind_of(event) == "preempted" and event.detail.get("job_id") not in others
    ]


def _preemptor(detail: dict[str, Any]) -> dict[str, Any]:
    by = detail.get("preempted_by")
    return by if isinstance(by, dict) else {}

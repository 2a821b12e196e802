"""End a run: its baseline job and every replica, also those that appear while we do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hpctools.elastic.folder import ACTIVE_STATES, RunFolder, RunStatus, utc_now
from hpctools.elastic.spec import RunSpec
from hpctools.slurm.client import SlurmClient
from hpctools.slurm.types import Job
from hpctools.submit.overview import JobView, overview

_POLL_SECONDS = 0.5
_POLLS = 20


@dataclass(frozen=True)
class Cancelled:
    """What cancelling a run did.

    Attributes:
        baseline, replicas: ids of the jobs that were cancelled.
        remaining: ids of jobs that were still there when we stopped waiting.
    """

    run: str
    baseline: tuple[int, ...]
    replicas: tuple[int, ...]
    remaining: tuple[int, ...]


def cancel_run(
    folder: RunFolder, client: SlurmClient, sleep: Callable[[float], None], *, by: str
) -> Cancelled:
    """Cancel all jobs of a run, wait until they are gone, and record that the run is cancelled.

    Args:
        sleep: waits that many seconds; 10 in all at most.
        by: who asked for it.

    Raises:
        ElasticError: the folder is no run's.
        UnreachableError: the controller does not answer.
    """
    spec = folder.spec()
    done = _cancel_jobs(folder, spec, client, sleep, ("baseline", "replica"))
    if not done.remaining:
        settle(folder, spec, "cancelled", f"cancelled by {by}")
    return done


def cancel_replicas(folder: RunFolder, client: SlurmClient, sleep: Callable[[float], None]) -> Cancelled:
    """Cancel what replicas are left when the baseline job ends; for its batch script.

    A run whose coordinator could not say how it ended is recorded as cancelled or failed.
    """
    spec = folder.spec()
    done = _cancel_jobs(folder, spec, client, sleep, ("replica",))
    jobs = _active(folder, spec, client.jobs(user=spec.user))
    if any(job.role == "baseline" and job.state == "RUNNING" for job in jobs):
        settle(folder, spec, "failed", "its agents ended before the training did; see the job's output")
    else:
        settle(folder, spec, "cancelled", "Slurm ended its baseline job: cancelled, or out of time")
    return done


def settle(folder: RunFolder, spec: RunSpec, state: str, message: str) -> None:
    """Write a final state, unless the run already has one."""
    status = folder.status()
    if status is not None and status.state not in ACTIVE_STATES:
        return
    known = status or RunStatus(state, min_nodes=spec.min_nodes, max_nodes=spec.max_nodes)
    final = replace(known, state=state, message=message, updated=utc_now(), nodes=(), world_size=0)
    folder.write_status(final)
    folder.append_event(state, message=message)


def _cancel_jobs(
    folder: RunFolder,
    spec: RunSpec,
    client: SlurmClient,
    sleep: Callable[[float], None],
    roles: Sequence[str],
) -> Cancelled:
    asked: dict[int, str] = {}
    left: list[JobView] = []
    for _ in range(_POLLS + 1):
        left = [job for job in _active(folder, spec, client.jobs(user=spec.user)) if job.role in roles]
        # The baseline first: its coordinator would replace a replica that goes.
        fresh = sorted((job for job in left if job.id not in asked), key=lambda job: (job.role, job.id))
        if fresh:
            client.cancel([job.id for job in fresh])
            asked |= {job.id: job.role for job in fresh}
        elif not left:
            break
        sleep(_POLL_SECONDS)
    return Cancelled(
        run=spec.id,
        baseline=tuple(job_id for job_id, role in asked.items() if role == "baseline"),
        replicas=tuple(job_id for job_id, role in asked.items() if role == "replica"),
        # What is completing has been signalled and can only end.
        remaining=tuple(job.id for job in left if job.state != "COMPLETING"),
    )


def _active(folder: RunFolder, spec: RunSpec, queue: Sequence[Job]) -> tuple[JobView, ...]:
    return overview(spec, None, folder.jobs(), (), queue).jobs

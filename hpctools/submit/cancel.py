"""End a run: its baseline job and every replica, also those that appear while we do it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hpctools.elastic.folder import ACTIVE_STATES, Ending, RunFolder, RunStatus, utc_now
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError
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
    # Before anything ends: no agent is to take the run over.
    _ask_to_end(folder, f"cancelled by {by}")
    done = _cancel_jobs(folder, spec, client, sleep, ("baseline", "replica"))
    if not done.remaining:
        settle(folder, spec, "cancelled", f"cancelled by {by}")
    return done


def cancel_replicas(folder: RunFolder, client: SlurmClient, sleep: Callable[[float], None]) -> Cancelled:
    """Cancel what replicas are left when the baseline job ends; for its batch script.

    A run whose coordinator could not say how it ended is recorded as cancelled or failed. When all agents of
    a baseline job were killed that Slurm has not ended, a replica's agent takes the run over, and nothing is
    done.
    """
    spec = folder.spec()
    if _goes_on(folder, spec, client):
        return Cancelled(spec.id, (), (), ())
    done = _cancel_jobs(folder, spec, client, sleep, ("replica",))
    jobs = _active(folder, spec, client.jobs(user=spec.user))
    if _running(jobs, "baseline"):
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


def _goes_on(folder: RunFolder, spec: RunSpec, client: SlurmClient) -> bool:
    status = folder.status()
    if status is None or status.state not in ACTIVE_STATES or folder.ending() is not None:
        return False
    jobs = _active(folder, spec, client.jobs(user=spec.user))
    if not _running(jobs, "baseline"):
        _ask_to_end(folder, "Slurm ended its baseline job: cancelled, or out of time")
        return False
    return _running(jobs, "replica")


def _running(jobs: Sequence[JobView], role: str) -> bool:
    return any(job.role == role and job.state == "RUNNING" for job in jobs)


def _ask_to_end(folder: RunFolder, message: str) -> None:
    with contextlib.suppress(ElasticError):  # a full disk: then the jobs' end is what the agents see
        folder.ask_to_end(Ending("cancelled", message))


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

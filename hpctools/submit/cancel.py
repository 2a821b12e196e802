"""End runs: their baseline jobs and every replica, also those that appear while we do it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpctools.elastic.folder import ACTIVE_STATES, Ending, RunFolder, RunStatus, utc_now
from hpctools.elastic.job_fate import ALIVE, Fate, fate_of, known_better
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError, SubmitError
from hpctools.slurm import accounting
from hpctools.slurm.client import SlurmClient
from hpctools.slurm.types import Job
from hpctools.submit.overview import JobView, overview
from hpctools.submit.plan import run_comment

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


@dataclass
class _Run:
    """A run that is being cancelled.

    Attributes:
        asked: roles of the jobs that were cancelled, by id.
        left: jobs that were still there when we last looked.
    """

    folder: RunFolder
    spec: RunSpec
    asked: dict[int, str] = field(default_factory=dict)
    left: list[JobView] = field(default_factory=list)

    def active(self, queue: Mapping[str, list[Job]]) -> tuple[JobView, ...]:
        """Its jobs that have not ended, of the queue by comment."""
        jobs = [*queue.get(run_comment(self.spec.id), ()), *queue.get("", ())]
        return overview(self.spec, None, self.folder.jobs(), (), jobs).jobs

    @property
    def done(self) -> Cancelled:
        """What was done until now."""
        return Cancelled(
            run=self.spec.id,
            baseline=tuple(job_id for job_id, role in self.asked.items() if role == "baseline"),
            replicas=tuple(job_id for job_id, role in self.asked.items() if role == "replica"),
            # What is completing has been signalled and can only end.
            remaining=tuple(job.id for job in self.left if job.state != "COMPLETING"),
        )


def cancel_runs(
    folders: Sequence[RunFolder], client: SlurmClient, sleep: Callable[[float], None], *, by: str
) -> list[Cancelled]:
    """Cancel all jobs of runs, wait until they are gone, and record that the runs are cancelled.

    All are ended together, with a few commands however many they are. A run of which that was asked before
    ends without waiting for what it saves.

    Args:
        sleep: waits that many seconds; 10 in all at most.
        by: who asked for it.

    Raises:
        ElasticError: a folder is no run's; then nothing was done.
        UnreachableError: the controller does not answer.
    """
    runs = [_Run(folder, folder.spec()) for folder in folders]
    for run in runs:
        # Slurm does not tell the agents again of a job that is being ended.
        if run.folder.ending() is not None:
            _insist(run.folder)
        # Before anything ends: no agent is to take the run over.
        _ask_to_end(run.folder, f"cancelled by {by}")
    _cancel_jobs(runs, client, sleep, ("baseline", "replica"))
    for run in runs:
        if not run.done.remaining:
            settle(run.folder, run.spec, "cancelled", f"cancelled by {by}")
    return [run.done for run in runs]


def cancel_replicas(
    folder: RunFolder,
    client: SlurmClient,
    sleep: Callable[[float], None],
    own: int | None = None,
    ended_as: Callable[[int], str] = accounting.ended_as,
) -> Cancelled:
    """Cancel what replicas are left when the baseline job ends; for its batch script.

    A run whose coordinator could not say how it ended is recorded as cancelled or failed. It goes on, and
    nothing is done, when another baseline job is there, or a replica's agent takes it over: that is when all
    agents of a baseline job ended and Slurm has not ended it, when Slurm lost one of its nodes, or when it
    does not say what became of the job: who coordinates then asks on.

    Args:
        own: the baseline job that ends, which asks.
        ended_as: asks slurmdbd for the state of a job that is being ended.

    Raises:
        SubmitError: it is no baseline job of the run: then somebody else asks, and nothing was done.
        UnreachableError: the controller does not answer.
    """
    run = _Run(folder, folder.spec())
    jobs = run.active(_queue([run], client))
    baselines = {each.job_id for each in folder.jobs() if each.role == "baseline"}
    if own is None or own not in baselines | {job.id for job in jobs if job.role == "baseline"}:
        raise SubmitError(
            "--replicas is for the batch script of a run's baseline job, when that ends",
            f"end the run with hp-cancel {run.spec.id}, or one of its jobs with scancel JOB",
        )
    fate = known_better(own, fate_of(own, jobs), ended_as, sleep)
    if _goes_on(run, jobs, own, fate):
        return run.done
    _cancel_jobs([run], client, sleep, ("replica",))
    if fate.wanted or fate.open:
        settle(folder, run.spec, "cancelled", f"baseline job {own} {fate.words}")
    else:
        why = "its agents ended before the training did" if fate.alive else f"baseline job {own} {fate.words}"
        settle(folder, run.spec, "failed", f"{why}; see the job's output")
    return run.done


def settle(folder: RunFolder, spec: RunSpec, state: str, message: str) -> None:
    """Write a final state, unless the run already has one."""
    status = folder.status()
    if status is not None and status.state not in ACTIVE_STATES:
        return
    known = status or RunStatus(state, min_nodes=spec.min_nodes, max_nodes=spec.max_nodes)
    final = replace(known, state=state, message=message, updated=utc_now(), nodes=(), world_size=0)
    folder.write_status(final)
    folder.append_event(state, message=message)


def _goes_on(run: _Run, jobs: Sequence[JobView], own: int, fate: Fate) -> bool:
    status = run.folder.status()
    if status is None or status.state not in ACTIVE_STATES or run.folder.ending() is not None:
        return False
    if fate.wanted:
        _ask_to_end(run.folder, f"baseline job {own} {fate.words}")
        return False
    return any(
        job.id != own and job.state in (ALIVE if job.role == "baseline" else ("RUNNING",)) for job in jobs
    )


def _insist(folder: RunFolder) -> None:
    with contextlib.suppress(ElasticError):
        folder.ask_again()


def _ask_to_end(folder: RunFolder, message: str) -> None:
    with contextlib.suppress(ElasticError):  # a full disk: then the jobs' end is what the agents see
        folder.ask_to_end(Ending("cancelled", message))


def _cancel_jobs(
    runs: Sequence[_Run], client: SlurmClient, sleep: Callable[[float], None], roles: Sequence[str]
) -> None:
    for _ in range(_POLLS + 1):
        queue = _queue(runs, client)
        fresh: list[JobView] = []
        for run in runs:
            run.left = [job for job in run.active(queue) if job.role in roles]
            fresh += [job for job in run.left if job.id not in run.asked]
            run.asked |= {job.id: job.role for job in run.left}
        for jobs in _in_order(fresh):
            client.cancel(jobs)
        if not any(run.left for run in runs):
            return
        sleep(_POLL_SECONDS)


def _in_order(jobs: Sequence[JobView]) -> Iterator[list[int]]:
    """Ids of jobs in parts that are cancelled one after the other.

    First what waits: of an array with a limit the next run would begin when one before it ends. Baselines
    before replicas: a coordinator would replace a replica that goes.
    """
    parts: dict[tuple[bool, str], list[int]] = {}
    for job in sorted(jobs, key=lambda job: job.id):
        parts.setdefault((job.state != "PENDING", job.role), []).append(job.id)
    yield from (parts[part] for part in sorted(parts))


def _queue(runs: Sequence[_Run], client: SlurmClient) -> dict[str, list[Job]]:
    """Everybody's jobs whose runs these are, by comment."""
    found: dict[str, list[Job]] = {}
    for user in sorted({run.spec.user for run in runs}):
        for job in client.jobs(user=user):
            found.setdefault(job.comment, []).append(job)
    return found

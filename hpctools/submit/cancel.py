"""End runs: their baseline jobs and every replica, also those that appear while we do it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpctools.elastic.folder import ACTIVE_STATES, Ending, JobRecord, RunFolder, RunStatus, utc_now
from hpctools.elastic.job_fate import ALIVE, Fate, fate_of, known_better
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError, SubmitError, UnreachableError
from hpctools.slurm import accounting
from hpctools.slurm.client import SlurmClient
from hpctools.slurm.states import is_waiting
from hpctools.slurm.types import Job
from hpctools.submit import asking
from hpctools.submit.overview import JobView, overview
from hpctools.submit.plan import run_comment

_POLL_SECONDS = 0.5
_STAYS_SECONDS = 10.0  # for which a job may not heed that it is cancelled
_ENDS_SECONDS = 5.0  # beyond KillWait, until Slurm has ended what it kills then


@dataclass(frozen=True)
class Cancelled:
    """What cancelling a run did.

    Attributes:
        baseline, replicas: ids of the jobs that were cancelled.
        remaining: ids of jobs that were still there when we stopped waiting.
        failure: why the run's folder does not say that it is cancelled; empty where it does, or jobs remain.
    """

    run: str
    baseline: tuple[int, ...]
    replicas: tuple[int, ...]
    remaining: tuple[int, ...]
    failure: str = ""


@dataclass
class _Run:
    """A run that is being cancelled.

    Attributes:
        asked: roles of the jobs that were cancelled, by id.
        left: jobs that were still there when we last looked.
        told: its folder says that it is to end.
        failure: why its end could not be recorded; empty otherwise.
    """

    folder: RunFolder
    spec: RunSpec
    asked: dict[int, str] = field(default_factory=dict)
    left: list[JobView] = field(default_factory=list)
    told: bool = False
    failure: str = ""

    def patience(self) -> float:
        """Seconds for which it is worth waiting: ranks may save as long as Slurm lets them, KillWait."""
        if self.ends and not self.is_settled:
            return max(_STAYS_SECONDS, self.spec.kill_wait_s + _ENDS_SECONDS)
        return _STAYS_SECONDS if self.left else 0.0

    @property
    def ends(self) -> bool:
        """Whether Slurm has signalled jobs of it that are still there."""
        return any(job.state == "COMPLETING" for job in self.left)

    @property
    def is_settled(self) -> bool:
        """Whether its coordinator has said how it ended, which it does once nothing of it runs."""
        with contextlib.suppress(ElasticError):
            status = self.folder.status()
            return status is not None and status.state not in ACTIVE_STATES
        return False

    def active(self, queue: Mapping[str, list[Job]]) -> tuple[JobView, ...]:
        """Its jobs that have not ended, of the queue by comment."""
        jobs = [*queue.get(run_comment(self.spec.id), ()), *queue.get("", ())]
        return overview(self.spec, None, self.records(), (), jobs).jobs

    def records(self) -> Sequence[JobRecord]:
        """Its recorded jobs; none where that cannot be read: they have the run's comment, too."""
        with contextlib.suppress(ElasticError):
            return self.folder.jobs()
        return ()

    @property
    def done(self) -> Cancelled:
        """What was done until now."""
        return Cancelled(
            run=self.spec.id,
            baseline=tuple(job_id for job_id, role in self.asked.items() if role == "baseline"),
            replicas=tuple(job_id for job_id, role in self.asked.items() if role == "replica"),
            # What is completing has been signalled and can only end.
            remaining=tuple(job.id for job in self.left if job.state != "COMPLETING"),
            failure=self.failure,
        )

    def record(self, message: str) -> None:
        """Have its folder say that it is cancelled; a full disk keeps no other run from being recorded."""
        try:
            settle(self.folder, self.spec, "cancelled", message)
        except ElasticError as error:
            self.failure = str(error)


def cancel_runs(
    folders: Sequence[RunFolder],
    client: SlurmClient,
    sleep: Callable[[float], None],
    *,
    by: str,
    say: Callable[[str], None] = lambda text: None,
) -> list[Cancelled]:
    """Cancel all jobs of runs, wait until they are gone, and record that the runs are cancelled.

    All are ended together, with a few commands however many they are. A run that a call before this one has
    cancelled in Slurm ends without waiting for what it saves; a call with the same `asking.request` is the
    same one, tried again.

    Args:
        sleep: waits that many seconds; 10 in all at most, or KillWait and 5 where jobs end in that time.
        by: who asked for it.
        say: tells a person what is waited for, or is not any more.

    Raises:
        ElasticError: a folder is no run's; then nothing was done.
        UnreachableError: the controller does not answer; it says which runs end all the same.
    """
    runs, request = [_Run(folder, folder.spec()) for folder in folders], asking.request()
    course = _Course(request, say)
    for run in runs:
        if _insist(run, request):
            course.gives_up(run)
        # Before anything ends: no agent is to take the run over.
        run.told = _ask_to_end(run.folder, f"cancelled by {by}")
    try:
        _cancel_jobs(runs, client, sleep, ("baseline", "replica"), course)
    except UnreachableError as error:
        told = [run.spec.id for run in runs if run.told and not run.is_settled]
        raise (_told_all_the_same(told, error) if told and not course.noted else error) from None
    for run in runs:
        if not run.done.remaining:
            run.record(f"cancelled by {by}")
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
    baselines = {each.job_id for each in run.records() if each.role == "baseline"}
    if own is None or own not in baselines | {job.id for job in jobs if job.role == "baseline"}:
        raise SubmitError(
            "--replicas is for the batch script of a run's baseline job, when that ends",
            f"end the run with hp-cancel {run.spec.id}, or one of its jobs with scancel JOB",
        )
    fate = known_better(own, fate_of(own, jobs), ended_as, sleep)
    if _goes_on(run, jobs, own, fate):
        return run.done
    _cancel_jobs([run], client, sleep, ("replica",), _Course())
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


def _insist(run: _Run, request: str) -> bool:
    """Slurm does not tell the agents again of a job that is being ended: the folder does.

    Only of another hp-cancel, which has got through: whose line broke, or whose Slurm did not answer, tries
    again and has seen nothing of the first time; and that the time is up nobody has asked for.
    """
    before = run.folder.asked()
    if before in (None, "", request):
        return False
    with contextlib.suppress(ElasticError):
        run.folder.ask_again()
        return not run.is_settled
    return False


def _ask_to_end(folder: RunFolder, message: str) -> bool:
    """Whether it could be noted; on a full disk the jobs' end is what the agents see."""
    with contextlib.suppress(ElasticError):
        folder.ask_to_end(Ending("cancelled", message))
        return True
    return False


def _told_all_the_same(told: Sequence[str], error: UnreachableError) -> UnreachableError:
    """What a person is to know of runs whose jobs could not be cancelled."""
    named = f"run {told[0]} has" if len(told) == 1 else f"{len(told)} runs have"
    remedy = f"{error.remedy}, and " if error.remedy else ""
    return UnreachableError(
        f"{error.message}; {named} been told to end: what trains ends by itself, "
        "but jobs that wait are still to be cancelled",
        f"{remedy}hp-cancel again once it answers",
    )


@dataclass
class _Course:
    """What a person sees of it, and what is noted.

    Attributes:
        request: the id of what was asked; empty: no person did.
    """

    request: str = ""
    say: Callable[[str], None] = lambda text: None
    noted: bool = False
    said: set[str] = field(default_factory=set)

    def note(self, runs: Sequence[_Run]) -> None:
        """Slurm was told."""
        for run in runs if self.request and not self.noted else ():
            with contextlib.suppress(ElasticError):
                run.folder.note_asked(self.request)
        self.noted = True

    def gives_up(self, run: _Run) -> None:
        """It was cancelled again."""
        self.said.add(run.spec.id)
        self.say(f"run {run.spec.id}: cancelled again, so what it saves is not waited for any more")

    def patience(self, runs: Sequence[_Run]) -> float:
        """Seconds in all; a batch script that asks has no longer, since its own job is being ended."""
        return max(run.patience() for run in runs) if self.request else _STAYS_SECONDS

    def tell(self, runs: Sequence[_Run]) -> None:
        """What is waited for."""
        for run in runs:
            if self.request and run.spec.id not in self.said and run.ends and not run.is_settled:
                self.said.add(run.spec.id)
                self.say(
                    f"run {run.spec.id}: may be saving, and is waited for, {run.patience():.0f} s at most; "
                    "hp-cancel again gives that up"
                )


def _cancel_jobs(
    runs: Sequence[_Run],
    client: SlurmClient,
    sleep: Callable[[float], None],
    roles: Sequence[str],
    course: _Course,
) -> None:
    """Cancel them, and those that appear meanwhile, until none is left or they have had their time."""
    waited = 0.0
    while True:
        queue = _queue(runs, client)
        fresh: list[JobView] = []
        for run in runs:
            run.left = [job for job in run.active(queue) if job.role in roles]
            fresh += [job for job in run.left if job.id not in run.asked]
            run.asked |= {job.id: job.role for job in run.left}
        for jobs in _in_order(fresh):
            client.cancel(jobs)
        course.note(runs)
        if not any(run.left for run in runs) or waited > course.patience(runs):
            return
        course.tell(runs)
        sleep(_POLL_SECONDS)
        waited += _POLL_SECONDS


def _in_order(jobs: Sequence[JobView]) -> Iterator[list[int]]:
    """Ids of jobs in parts that are cancelled one after the other.

    First what waits: of an array with a limit the next run would begin when one before it ends. Baselines
    before replicas: a coordinator would replace a replica that goes.
    """
    parts: dict[tuple[bool, str], list[int]] = {}
    for job in sorted(jobs, key=lambda job: job.id):
        parts.setdefault((not is_waiting(job.state), job.role), []).append(job.id)
    yield from (parts[part] for part in sorted(parts))


def _queue(runs: Sequence[_Run], client: SlurmClient) -> dict[str, list[Job]]:
    """Everybody's jobs whose runs these are, by comment."""
    found: dict[str, list[Job]] = {}
    for user in sorted({run.spec.user for run in runs}):
        for job in client.jobs(user=user):
            found.setdefault(job.comment, []).append(job)
    return found

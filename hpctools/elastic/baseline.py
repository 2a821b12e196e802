"""The run's baseline job: when Slurm lost it another one is submitted, when it was cancelled the run ends.

What is left of a job in whose place another one came is given back: Slurm keeps all nodes of a job to its
end, also those that were drained.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hpctools.elastic.attendance import LATE_SECONDS, LOST_SECONDS
from hpctools.elastic.complaints import Complaints
from hpctools.elastic.context import RunContext
from hpctools.elastic.dependents import Dependents
from hpctools.elastic.job_fate import fate_of, known_better
from hpctools.elastic.peers import Agent, Outcome
from hpctools.elastic.replica_jobs import another_baseline, is_replica, kept_off
from hpctools.errors import HpctoolsError
from hpctools.slurm.client import RunClient
from hpctools.slurm.states import is_waiting
from hpctools.slurm.types import Job

LOOK_SECONDS = 2.0
RETURN_SECONDS = 1.0
LONGEST_BACKOFF = 60.0
SUBMITTING_SECONDS = 10.0
STARTING_SECONDS = 20.0
ASK_SECONDS = 10.0  # how often Slurm is asked of a job that lacks agents


class Baseline:
    """Keeps a baseline job in Slurm's queue as long as the run lasts.

    Args:
        job_id: the last one that was submitted.
        give_back: has an agent's workers leave at a step boundary, and the agent after them.
    """

    def __init__(
        self, run: RunContext, client: RunClient, job_id: int, give_back: Callable[[Agent], None]
    ) -> None:
        self._run = run
        self._client = client
        self._job_id = job_id
        self._give_back = give_back
        self._without: frozenset[str] | None = None  # nodes that it was submitted not to get; None: not known
        self._failures = 0
        self._not_before = 0.0
        self._complaints = Complaints(run.warn)
        self._dependents = Dependents(run, client)
        self._is_silent = False  # it should be there, and Slurm does not know yet that it is not
        self._submitting: asyncio.Future[int] | None = None
        self._gap = _Gap()

    async def keep(self) -> None:
        """Look after the job for ever."""
        while True:
            if not self._is_failing():
                # Its agents have a moment to come, or to come back.
                await asyncio.sleep(RETURN_SECONDS)
            self._run.baseline_lost.clear()
            if self._is_failing():
                await self._submit("loses a node")
            elif self.is_open or not self._is_there() or self._is_short():
                await self._look()
            await self._dependents.follow(self._awaited())
            self._give_back_former()
            await _wait_at_most(self._run.baseline_lost, LOOK_SECONDS)

    @property
    def is_open(self) -> bool:
        """Whether Slurm ends the job, and has not said yet why."""
        run = self._run
        may_ask = not (self._ends_without() or run.is_hearing) and time.monotonic() >= self._not_before
        return self._job_id in run.open_baselines and may_ask

    def unused(self) -> int | None:
        """The job, where it waits or no agent of it has come; asked before the run's end, when agents go."""
        return None if self._job_id == self._run.job_id or any(self._agents()) else self._job_id

    async def cancel(self, unused: int | None) -> None:
        """The run has ended without this job; one that ends by itself, and well, is not to be cancelled.

        `keep` must have been cancelled; what it was submitting just then is cancelled as well.
        """
        jobs = [job for job in (unused, await self._submitted_meanwhile()) if job is not None]
        if not jobs:
            return
        if unused is not None and self._run.ended.done() and self._run.ended.result().state == "finished":
            await self._dependents.settle(unused)
        try:
            await asyncio.to_thread(self._client.cancel, jobs)
        except HpctoolsError as error:
            named = " and ".join(map(str, jobs))
            self._complaints.say(f"cannot cancel the baseline job {named}", error)

    async def _submitted_meanwhile(self) -> int | None:
        """The job of a submission that nobody waits for any more; a thread cannot be stopped in it."""
        if self._submitting is None:
            return None
        await asyncio.wait([self._submitting], timeout=SUBMITTING_SECONDS)
        done = self._submitting.done() and self._submitting.exception() is None
        return self._submitting.result() if done else None

    def _is_there(self) -> bool:
        known = any(self._agents()) or self._ends_without() or self._run.is_hearing
        return known or time.monotonic() < self._not_before

    def _ends_without(self) -> bool:
        """Whether the run has ended, or those who did its last step with others only end their programs."""
        return self._run.is_over or (self._run.completed and bool(self._run.roster.agents))

    def _awaited(self) -> int:
        """The job for which those wait that wait for the run.

        When the node of a baseline job dies, Slurm takes minutes to notice, and then all begins at once that
        waits for that job's end. Until another one is there the job in which we run has its place.
        """
        return self._run.job_id if self._is_silent and not any(self._agents()) else self._job_id

    def _is_failing(self) -> bool:
        """Whether another job should be in the queue though this one's agents are still there."""
        run = self._run
        return (
            self._job_id in run.failing_baselines
            and self._job_id not in run.open_baselines  # Slurm is asked why it ends first
            and bool(self._agents())
            and not self._ends_without()
            and time.monotonic() >= self._not_before
        )

    def _is_short(self) -> bool:
        """Whether it is time to ask Slurm of a job of which only some agents are there."""
        is_whole = len(self._agents()) >= self._run.spec.min_nodes
        return self._gap.asks(self._lacking(), time.monotonic(), is_whole=is_whole)

    def _lacking(self) -> int:
        """How many agents of the job are not there while others are, and nothing is being done about it."""
        agents, run = self._agents(), self._run
        is_seen_to = self._ends_without() or self._job_id in run.failing_baselines | run.open_baselines
        if not agents or is_seen_to or not run.spec.baseline_script or any(each.leaving for each in agents):
            return 0
        return max(0, run.spec.min_nodes - len(agents))

    def _agents(self) -> list[Agent]:
        agents = self._run.roster.agents.values()
        return [each for each in agents if each.is_baseline and each.job_id == self._job_id]

    def _give_back_former(self) -> None:
        """Once all nodes of a job could train, those of the one whose place it took are not needed."""
        agents = [each for each in self._run.roster.agents.values() if each.is_baseline]
        former = [each for each in agents if each.job_id != self._job_id and not each.leaving]
        if not former or self._run.is_over or not self._is_whole():
            return
        jobs = sorted({each.job_id for each in former})
        ids = " and ".join(map(str, jobs))
        self._run.warn(f"what is left of baseline job {ids} is given back: {self._job_id} has its place")
        for agent in former:
            self._give_back(agent)

    def _is_whole(self) -> bool:
        """Whether the job's nodes are all there and stay; in live mode, whether their workers could train."""
        run, agents = self._run, [each for each in self._agents() if not each.leaving]
        if len(agents) < run.spec.min_nodes:
            return False
        able = [
            sum(run.membership.knows(each.name) for each in run.roster.workers_of(agent)) for agent in agents
        ]
        return run.restart is not None or min(able) >= run.spec.workers_per_node

    async def _look(self) -> None:
        """Agents of the job are not there, or it is being ended: find out what Slurm knows of it."""
        try:
            jobs = await asyncio.to_thread(self._client.jobs, user=self._run.spec.user)
        except HpctoolsError as error:
            self._complaints.say("cannot see the baseline job", error)
            return
        self._complaints.over("cannot see the baseline job")
        job_id = self._job_id
        fate = fate_of(job_id, jobs)
        fate = await asyncio.to_thread(known_better, job_id, fate, self._client.ended_as, attempts=1)
        job = next((each for each in jobs if each.id == job_id), None)
        self._is_silent = job is not None and _should_be_there(job)
        lacking = self._lacking()
        if fate.lost:
            if self.is_open or not self._is_there() or lacking:
                await self._submit(fate.words)
        elif fate.wanted:
            self._run.end(Outcome("cancelled", f"baseline job {self._job_id} {fate.words}"))
        elif (
            lacking and job is not None and job.state == "RUNNING" and self._gap.is_lasting(time.monotonic())
        ):
            await self._submit(f"lacks {lacking} of its {self._run.spec.min_nodes} nodes")
        else:
            await self._keep_off_excluded(job)

    async def _keep_off_excluded(self, job: Job | None) -> None:
        """A job that waits is told what is excluded by now, and what is not any more; it keeps its place."""
        excluded = self._run.replicas.excluded
        if job is None or not is_waiting(job.state) or excluded == self._without:
            return
        nodes = kept_off(self._run.spec.baseline_options, excluded)
        try:
            await asyncio.to_thread(self._client.exclude, job.id, nodes)
        except HpctoolsError as error:
            self._complaints.say(
                f"baseline job {job.id} waits and may get {' '.join(sorted(excluded))}", error
            )
            return
        self._without = excluded

    async def _submit(self, fate: str) -> None:
        spec, run = self._run.spec, self._run
        if not spec.baseline_script:
            self._complaints.say(f"baseline job {self._job_id} {fate}", "how to submit it again is not known")
            return
        self._failures += 1
        self._not_before = time.monotonic() + min(LONGEST_BACKOFF, 2.0**self._failures)
        excluded, now = run.replicas.excluded, time.time()
        options = another_baseline(spec, run.replicas.end_if_begun(now), now, excluded)
        script = Path(spec.baseline_script)
        try:
            left = await asyncio.to_thread(self._left_behind)
            if self._ends_without():  # meanwhile: asking takes as long as slurmctld likes
                return
            job_id = left if left else await self._submitted(options, script)
        except HpctoolsError as error:
            self._complaints.say("cannot submit a new baseline job", error)
            return
        run.warn(f"baseline job {self._job_id} {fate}; {job_id} takes its place")
        self._job_id, self._without = job_id, None if left else excluded
        self._gap = _Gap()
        self._is_silent = False
        self._complaints.over("cannot submit a new baseline job")
        run.replicas.ends_with(job_id)
        run.journal.job("baseline", job_id)
        run.journal.event("submitted", role="baseline", job_id=job_id)

    async def _submitted(self, options: Sequence[str], script: Path) -> int:
        self._submitting = asyncio.ensure_future(asyncio.to_thread(self._client.submit, options, script))
        try:
            job_id = await asyncio.shield(self._submitting)
        except HpctoolsError:
            self._submitting = None
            raise
        self._submitting = None
        return job_id

    def _left_behind(self) -> int | None:
        """A job that a coordinator before us submitted as it was replaced, and so could not note."""
        spec, found = self._run.spec, self._client.jobs(user=self._run.spec.user)
        later = [job for job in found if job.id > self._job_id and job.comment == f"hp-run:{spec.id}"]
        return max(
            (job.id for job in later if not is_replica(job, spec) and fate_of(job.id, [job]).alive),
            default=None,
        )


def _should_be_there(job: Job) -> bool:
    """Whether a job has run for so long that its agents have had the time to come."""
    return job.state == "RUNNING" and job.started is not None and time.time() - job.started > STARTING_SECONDS


class _Gap:
    """For how long the job has lacked agents; all times in seconds of one clock that only grows.

    Slurm ends a job whose node fails. It does not where only what ran on the node has ended; and of a job
    that it has ended something may be left that takes part. In either case the run would stay smaller.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._asked = 0.0
        self._was_whole = False

    def asks(self, lacking: int, now: float, *, is_whole: bool) -> bool:
        """Whether Slurm is to be asked about it now."""
        self._was_whole |= is_whole
        if not lacking:
            self._since = None
            return False
        if self._since is None:
            self._since = self._asked = now
        if now - self._asked < ASK_SECONDS:
            return False
        self._asked = now
        return True

    def is_lasting(self, now: float) -> bool:
        """Whether those that are not there are given up."""
        limit = LOST_SECONDS if self._was_whole else LATE_SECONDS
        return self._since is not None and now - self._since >= limit


async def _wait_at_most(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except asyncio.TimeoutError:
        return

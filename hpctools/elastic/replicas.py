"""The run's replica jobs: one Slurm job a slot, submitted again when it ended, ended with the run.

Slurm may be slow or down: every call runs in a thread, a failure only delays the next attempt, and the
training does not notice.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from hpctools.elastic.attendance import Attendance
from hpctools.elastic.complaints import Complaints
from hpctools.elastic.exclusions import Span, add, avoided
from hpctools.elastic.idle_jobs import IdleJobs
from hpctools.elastic.job_fate import ALIVE, Fate
from hpctools.elastic.own_ends import GIVEN_BACK, OwnEnds
from hpctools.elastic.preemptors import Preemptors
from hpctools.elastic.protocol import SILENCE_SECONDS
from hpctools.elastic.replica_jobs import (
    is_replica,
    minutes_left,
    sbatch_options,
    shorter_limit,
    waits_for_others,
)
from hpctools.elastic.slots import Slot
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.time_limit import TimeLimit
from hpctools.elastic.yielding import Yielding
from hpctools.errors import HpctoolsError
from hpctools.slurm.client import RunClient
from hpctools.slurm.states import is_waiting
from hpctools.slurm.types import Job

LOOK_SECONDS = 1.0
QUEUE_SECONDS = 10.0
SAME_CRASHES = 3
CANCEL_ATTEMPTS = 3


class Journal(Protocol):
    """Where the run's history is written."""

    def event(self, event: str, **detail: Any) -> None:
        """Something happened."""
        ...

    def job(self, role: str, job_id: int) -> None:
        """A job was submitted; told again of one that is noted, nothing is done."""
        ...

    def time_limit(self, limit: TimeLimit) -> None:
        """How long the baseline job may go on has changed."""
        ...


class Replicas:
    """Keeps as many replica jobs in Slurm's queue as the run may have.

    Args:
        limit: what is known of the run's baseline job, with whose time limit the replicas end.
        clock: seconds that only grow.
        wall_clock: Unix seconds.

    Attributes:
        are_wanted: asked before a job is submitted: who takes over hears first how the run stands.
    """

    def __init__(
        self,
        client: RunClient,
        spec: RunSpec,
        journal: Journal,
        clock: Callable[[], float] = time.monotonic,
        *,
        limit: TimeLimit = TimeLimit(None),  # noqa: B008 - frozen
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._spec = spec
        self._journal = journal
        self._clock = clock
        self._wall_clock = wall_clock
        self._limit = limit
        self._slots = [Slot(replica, nodes) for replica, nodes in enumerate(spec.replica_nodes)]
        self._excluded: dict[str, Span] = {}  # also those that were until now
        self._idle = IdleJobs(spec.elastic_policy, spec.replica_nodes)
        self._crashes: defaultdict[str, set[int]] = defaultdict(set)  # jobs, by the last line
        self._attendance = Attendance()
        self._own_ends = OwnEnds()
        self._yielding = Yielding(spec.grace_seconds)
        told = self._note_preemptor, self._note_other_end
        self._preemptors = Preemptors(client, f"hp-run:{spec.id}", spec.takers, *told)
        self._stopped = False
        self._has_strangers = bool(self._slots)  # whether there may be jobs of the run that have no slot
        self.are_wanted: Callable[[], bool] = lambda: True
        self._wake = asyncio.Event()
        self._looked = -QUEUE_SECONDS
        self._complaints = Complaints(lambda told: journal.event("warning", message=told))

    async def keep(self) -> None:
        """Submit and submit again until `stop`."""
        while not self._stopped:
            if self._has_strangers:
                self._has_strangers = False
                await self._adopt()
            await self._look_at_queue()
            for slot in self._slots:
                if self._is_due(slot):
                    await self._submit(slot)
            await self._give_back_idle()
            self._wake.clear()
            await _wait_at_most(self._wake, LOOK_SECONDS)

    @property
    def end(self) -> float | None:
        """When Slurm will end the baseline job, Unix seconds; None: never, or not yet known."""
        return self._limit.end

    @property
    def minutes(self) -> int | None:
        """What Slurm gives the baseline job from its beginning on; None: no limit, or not yet known."""
        return self._limit.minutes

    def end_if_begun(self, now: float) -> float | None:
        """As `end`, but for a baseline job that still waits as if it began `now`, Unix seconds."""
        return self._limit.end_if_begun(now)

    def ends_with(self, baseline: int) -> None:
        """Another baseline job has taken the lost one's place."""
        self._note(self._limit.of_another(baseline, self._wall_clock()))

    def _note(self, limit: TimeLimit) -> None:
        if limit != self._limit:
            self._limit = limit
            self._journal.time_limit(limit)

    def stop(self) -> None:
        """Submit no more."""
        self._stopped = True
        self._wake.set()

    @property
    def excluded(self) -> frozenset[str]:
        """Nodes that jobs must not get that are submitted now."""
        now = self._wall_clock()
        return frozenset(node for node, span in self._excluded.items() if now < span.until)

    def exclude(self, node: str, span: Span | None = None) -> None:
        """Jobs of the run do not get this node any more; those that wait are submitted again without it.

        Args:
            span: for how long; None: from now on.
        """
        add(self._excluded, node, Span(self._wall_clock()) if span is None else span)
        self._looked = -QUEUE_SECONDS
        self._wake.set()

    def avoid(self, node: str, seconds: float) -> None:
        """As `exclude`, for so long."""
        if seconds > 0:
            now = self._wall_clock()
            self.exclude(node, Span(now, now + seconds))

    def serves(self, job_id: int, agent: str) -> None:
        """A replica's agent has reported, for the first time or again."""
        self._attendance.came(job_id, agent, self._clock())
        self._has_strangers |= not self._of(job_id)
        for slot in self._of(job_id):
            slot.served = True

    def gone(self, job_id: int, agent: str) -> None:
        """A replica's agent has gone."""
        self._attendance.went(job_id, agent, self._clock())
        self._yielding.went(job_id, agent, self._clock())
        self._wake.set()

    def yields(self, job_id: int, agent: str) -> None:
        """A replica's agent was told that its node is wanted: no job of ours may take it meanwhile."""
        self._yielding.leaves(job_id, agent, self._clock())

    def crashed(self, job_id: int, last_line: str) -> None:
        """A worker of a replica job raised; too many jobs at the same place, and no more are submitted."""
        self._crashes[last_line].add(job_id)
        self.came_to_nothing(job_id)
        if len(self._crashes[last_line]) >= SAME_CRASHES and not self._stopped:
            self.stop()
            self._journal.event(
                "warning", message=f"no more replicas: {SAME_CRASHES} of them failed with: {last_line}"
            )

    def came_to_nothing(self, job_id: int) -> None:
        """A job's workers were of no use: the next one is asked for later, and later each time."""
        for slot in self._of(job_id):
            slot.served = False

    def was_given_back(self, job_id: int) -> None:
        """A coordinator before us has cancelled this job."""
        self._own_ends.begin(job_id)

    def ends_by_itself(self, job_id: int) -> bool:
        """Whether a job that Slurm ends is not taken from us: we gave it back, or its own time is up."""
        return self._own_ends.has(job_id, self._wall_clock())

    async def cancel_all(self) -> None:
        """Cancel every replica job that may still be there; tries again when Slurm does not answer."""
        job_ids = [slot.job_id for slot in self._slots if slot.job_id is not None]
        for attempt in range(CANCEL_ATTEMPTS if job_ids else 0):
            try:
                await asyncio.to_thread(self._client.cancel, job_ids)
                return
            except HpctoolsError as error:
                self._complaints.say(f"cannot cancel the replica jobs {job_ids}", error)
                await asyncio.sleep(2.0**attempt)

    async def find_preemptor(self, node: str, replica: int, told: float) -> None:
        """Note who has taken a replica's node, or that nobody has preempted it, once Slurm tells.

        Args:
            told: when its agent said that the node is wanted, on our clock; it has gone since.
        """
        ago = self._clock() - told
        gone = min(ago, SILENCE_SECONDS)  # so late may it be noticed that an agent has gone
        now = self._wall_clock()
        await self._preemptors.find(node, replica, now - ago, now - gone)

    def _note_preemptor(self, replica: int, node: str, job: Job) -> None:
        by = {"job_id": job.id, "user": job.user, "account": job.account, "qos": job.qos}
        self._journal.event("preempted_by", job_id=replica, node=node, preempted_by=by)
        self._yielding.taken(replica)

    def _note_other_end(self, replica: int, fate: Fate) -> None:
        """Its agents took it for a preemption, whose SIGTERM is the same."""
        self._journal.event("not_preempted", job_id=replica, why=fate.words)
        self._yielding.taken(replica)

    async def _adopt(self) -> None:
        """Take over the replica jobs that a coordinator before us has left, so that none is there twice."""
        while not self._stopped:
            jobs = await self._ask(user=self._spec.user)
            if jobs is not None:
                mine = sorted((job for job in jobs if is_replica(job, self._spec)), key=lambda job: job.id)
                for job in mine:  # who submitted it may have died before it was noted
                    self._journal.job("replica", job.id)
                await self._fill([job for job in mine if job.state in ALIVE and not self._of(job.id)])
                return
            await _wait_at_most(self._wake, LOOK_SECONDS)

    async def _fill(self, jobs: list[Job]) -> None:
        uniform = len({slot.nodes for slot in self._slots}) == 1
        for job in jobs:
            fitting = [slot for slot in self._slots if slot.job_id is None and slot.nodes == len(job.nodes)]
            free = [slot for slot in self._slots if slot.job_id is None] if uniform else fitting
            if free:
                free[0].job_id, free[0].served = job.id, bool(job.nodes)
                free[0].without = avoided(job, self._excluded)
            else:
                await self._cancel(job.id)

    async def _look_at_queue(self) -> None:
        taken = [slot for slot in self._slots if slot.job_id is not None]
        hurry = self._looked < 0 or self._may_submit_again(taken)
        if not (hurry or self._clock() - self._looked >= QUEUE_SECONDS):
            return
        self._looked = self._clock()
        baseline = self._limit.baseline
        known = [] if baseline is None else [baseline]
        jobs = await self._ask(ids=[*known, *(slot.job_id or 0 for slot in taken)]) if known or taken else []
        if jobs is None:
            return
        if baseline == self._limit.baseline:  # and not another one since we asked
            self._note(next((TimeLimit.of(job) for job in jobs if job.id == baseline), self._limit))
        active = {job.id: job for job in jobs if job.state in ALIVE}
        for slot in taken:
            if (job := active.get(slot.job_id or 0)) is None:
                self._attendance.forget(slot.job_id or 0)
                slot.free(self._clock())
                continue
            self._own_ends.note(job)
            if self.end is not None:
                await self._end_with_run(job, self.end)
            await self._give_back_incomplete(slot, job)
            await self._give_up_outdated(slot, job)

    def _may_submit_again(self, taken: Sequence[Slot]) -> bool:
        """Whether a job has just lost an agent, so that it may be over, and another one could follow."""
        now = self._clock()
        lost = any(self._attendance.just_lost(slot.job_id or 0, now) for slot in taken)
        return lost and not self._yielding.lasts(now)

    async def _ask(self, **which: Any) -> list[Job] | None:
        try:
            jobs = await asyncio.to_thread(self._client.jobs, **which)
        except HpctoolsError as error:
            self._complaints.say("cannot see the run's jobs", error)
            return None
        self._complaints.over("cannot see the run's jobs")
        return jobs

    async def _end_with_run(self, job: Job, end: float) -> None:
        """A job that had to wait must not outlive the run; its limit is only ever lowered."""
        minutes = shorter_limit(job, end, self._wall_clock())
        if minutes is not None:
            try:
                await asyncio.to_thread(self._client.shorten, job.id, minutes)
            except HpctoolsError as error:
                self._complaints.say(f"cannot shorten the replica job {job.id}", error)
            else:
                self._complaints.over(f"cannot shorten the replica job {job.id}")

    def _is_due(self, slot: Slot) -> bool:
        if slot.job_id is not None or self._clock() < slot.not_before or self._stopped:
            return False
        if self._yielding.lasts(self._clock()) or not self.are_wanted():
            return False
        if minutes_left(self.end, self._wall_clock() + 60) == 0:
            return False  # the run ends before it could do anything
        if self._idle.holds(slot.replica, self._serving().values(), self._clock()):
            return False
        served = {each.replica for each in self._slots if each.served}
        return not waits_for_others([each.nodes for each in self._slots], slot.replica, served)

    async def _give_back_idle(self) -> None:
        """Nodes that the run cannot use, since a step before theirs is gone, go back after a while."""
        if (idle := self._idle.due(self._serving(), self._clock())) is not None:
            message = f"replica job {idle} is given back: no allowed size needs it"
            self._journal.event("warning", message=message)
            await self._cancel(idle)

    def _serving(self) -> dict[int, int]:
        """The replica of each job that takes part with all of its nodes."""
        return {
            slot.job_id: slot.replica
            for slot in self._slots
            if slot.job_id and slot.served and not self._attendance.has_lost(slot.job_id)
        }

    async def _give_back_incomplete(self, slot: Slot, job: Job) -> None:
        """A job that lacks agents keeps its nodes for nothing; another one has a chance to get all."""
        now = self._clock()
        if is_waiting(job.state):
            self._attendance.forget(job.id)  # requeued
        elif job.state != "RUNNING":
            self._attendance.wait_again(job.id, now)
        elif self._attendance.is_incomplete(job.id, slot.nodes, now):
            self._attendance.wait_again(job.id, now)
            if await self._cancel(job.id):
                message = f"replica job {job.id} is given back: not all of its nodes take part"
                self._journal.event("warning", message=message)

    async def _give_up_outdated(self, slot: Slot, job: Job) -> None:
        """A job that waits might get a node that was excluded since, or wait though one is not any more.

        Another one takes its place at once.
        """
        if is_waiting(job.state) and self.excluded != slot.without and await self._cancel(job.id):
            slot.job_id, slot.served = None, False

    async def _cancel(self, job_id: int) -> bool:
        self._own_ends.begin(job_id)
        try:
            await asyncio.to_thread(self._client.cancel, [job_id])
        except HpctoolsError as error:
            self._own_ends.give_up(job_id)
            self._complaints.say(f"cannot cancel the replica job {job_id}", error)
            return False
        self._complaints.over(f"cannot cancel the replica job {job_id}")
        self._journal.event(GIVEN_BACK, job_id=job_id)
        return True

    async def _submit(self, slot: Slot) -> None:
        minutes = minutes_left(self.end, self._wall_clock())
        excluded = self.excluded
        options = sbatch_options(self._spec, slot.replica, minutes=minutes, excluded=excluded)
        script = Path(self._spec.replica_script)
        try:
            job_id = await asyncio.to_thread(self._client.submit, options, script)
        except HpctoolsError as error:
            slot.delay(self._clock())
            self._complaints.say("cannot submit a replica job", error)
            return
        slot.job_id, slot.without = job_id, excluded
        self._complaints.over("cannot submit a replica job")
        self._journal.job("replica", job_id)
        self._journal.event("submitted", role="replica", job_id=job_id)

    def _of(self, job_id: int) -> list[Slot]:
        return [slot for slot in self._slots if slot.job_id == job_id]


async def _wait_at_most(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except asyncio.TimeoutError:
        return

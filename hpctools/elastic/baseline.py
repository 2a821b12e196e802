"""The run's baseline job: when Slurm lost it another one is submitted, when it was cancelled the run ends."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from hpctools.elastic.context import RunContext
from hpctools.elastic.peers import Outcome
from hpctools.elastic.replica_jobs import another_baseline
from hpctools.errors import HpctoolsError
from hpctools.slurm.client import SlurmClient

LOOK_SECONDS = 2.0
RETURN_SECONDS = 1.0
LONGEST_BACKOFF = 60.0
WANTED_END = {
    "CANCELLED": "it was cancelled",
    "TIMEOUT": "it ran out of time",
    "DEADLINE": "its deadline came",
}
ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "COMPLETING")


class Baseline:
    """Keeps a baseline job in Slurm's queue as long as the run lasts.

    Args:
        job_id: the last one that was submitted.
    """

    def __init__(self, run: RunContext, client: SlurmClient, job_id: int) -> None:
        self._run = run
        self._client = client
        self._job_id = job_id
        self._failures = 0
        self._not_before = 0.0
        self._complaint = ""

    async def keep(self) -> None:
        """Look after the job for ever."""
        while True:
            # Its agents have a moment to come, or to come back.
            await asyncio.sleep(RETURN_SECONDS)
            self._run.baseline_lost.clear()
            if self._is_failing():
                await self._submit("loses a node")
            elif not self._is_there():
                await self._look()
            await _wait_at_most(self._run.baseline_lost, LOOK_SECONDS)

    async def cancel(self) -> None:
        """The run has ended: a job that still waits, or of which no agent has come, is not needed."""
        if self._job_id == self._run.job_id or any(self._agents()):
            return
        try:
            await asyncio.to_thread(self._client.cancel, [self._job_id])
        except HpctoolsError as error:
            self._complain(f"cannot cancel the baseline job {self._job_id}: {error}")

    def _is_there(self) -> bool:
        return any(self._agents()) or self._run.is_over or time.monotonic() < self._not_before

    def _is_failing(self) -> bool:
        """Whether another job should be in the queue though this one's agents are still there."""
        run = self._run
        return (
            self._job_id in run.failing_baselines
            and any(self._agents())
            and not run.is_over
            and time.monotonic() >= self._not_before
        )

    def _agents(self) -> list[str]:
        agents = self._run.roster.agents.values()
        return [each.name for each in agents if each.is_baseline and each.job_id == self._job_id]

    async def _look(self) -> None:
        """No agent of the job is there: find out what Slurm knows of it."""
        try:
            jobs = await asyncio.to_thread(self._client.jobs, user=self._run.spec.user)
        except HpctoolsError as error:
            self._complain(f"cannot see the baseline job: {error}")
            return
        state = next((job.state for job in jobs if job.id == self._job_id), "unknown to Slurm")
        if state in WANTED_END:
            self._run.end(
                Outcome("cancelled", f"Slurm ended baseline job {self._job_id}: {WANTED_END[state]}")
            )
        elif state not in ALIVE and not self._run.is_over and not self._is_there():
            await self._submit(f"is lost ({state})")

    async def _submit(self, fate: str) -> None:
        spec, run = self._run.spec, self._run
        if not spec.baseline_script:
            self._complain(f"baseline job {self._job_id} {fate}, and how to submit it is not known")
            return
        self._failures += 1
        self._not_before = time.monotonic() + min(LONGEST_BACKOFF, 2.0**self._failures)
        options = another_baseline(spec, run.replicas.end_if_begun, time.time(), run.replicas.excluded)
        script = Path(spec.baseline_script)
        try:
            job_id = await asyncio.to_thread(self._client.submit, options, script)
        except HpctoolsError as error:
            self._complain(f"cannot submit a new baseline job: {error}")
            return
        run.warn(f"baseline job {self._job_id} {fate}; {job_id} takes its place")
        self._job_id = job_id
        self._complaint = ""
        run.replicas.ends_with(job_id)
        run.journal.job("baseline", job_id)
        run.journal.event("submitted", role="baseline", job_id=job_id)

    def _complain(self, message: str) -> None:
        """Once, not at every attempt."""
        if message != self._complaint:
            self._complaint = message
            self._run.warn(message)


async def _wait_at_most(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except asyncio.TimeoutError:
        return

"""The run's replica jobs: one Slurm job a slot, submitted again when it ended, cancelled with the run.

Slurm may be slow or down: every call runs in a thread, a failure only delays the next attempt, and the
training does not notice.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hpctools.elastic.spec import RunSpec
from hpctools.errors import HpctoolsError
from hpctools.slurm.client import SlurmClient
from hpctools.slurm.types import Job

LOOK_SECONDS = 1.0
QUEUE_SECONDS = 10.0
LONGEST_BACKOFF = 60.0
SAME_CRASHES = 3
CANCEL_ATTEMPTS = 3
ACTIVE = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING")


class Journal(Protocol):
    """Where the run's history is written."""

    def event(self, event: str, **detail: Any) -> None:
        """Something happened."""
        ...

    def job(self, role: str, job_id: int) -> None:
        """A job was submitted."""
        ...


@dataclass
class _Slot:
    """Room for one replica job.

    Attributes:
        job_id: the job that has it; None when it is free.
        served: whether the job's agent ever reported.
        gone: whether the job's agent has gone; the job itself may take a moment longer.
        failures: attempts in a row that led to nothing.
        not_before: when the next submission may be tried.
    """

    job_id: int | None = None
    served: bool = False
    gone: bool = False
    failures: int = 0
    not_before: float = 0.0

    def free(self, now: float) -> None:
        """The job has ended."""
        if self.served:
            self.failures = 0
        else:
            self.delay(now)
        self.job_id, self.served, self.gone = None, False, False

    def delay(self, now: float) -> None:
        """An attempt led to nothing: wait longer each time."""
        self.failures += 1
        self.not_before = now + min(LONGEST_BACKOFF, 2.0 ** (self.failures - 1))


class Replicas:
    """Keeps as many replica jobs in Slurm's queue as the run may have.

    Args:
        clock: seconds that only grow.
    """

    def __init__(
        self,
        client: SlurmClient,
        spec: RunSpec,
        journal: Journal,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._spec = spec
        self._journal = journal
        self._clock = clock
        self._slots = [_Slot() for _ in range(spec.max_replicas)]
        self._crashes: Counter[str] = Counter()
        self._stopped = False
        self._wake = asyncio.Event()
        self._looked = -QUEUE_SECONDS
        self._complaint = ""

    async def keep(self) -> None:
        """Submit and submit again until `stop`."""
        while not self._stopped:
            await self._look_at_queue()
            for slot in self._slots:
                if slot.job_id is None and self._clock() >= slot.not_before and not self._stopped:
                    await self._submit(slot)
            self._wake.clear()
            await _wait_at_most(self._wake, LOOK_SECONDS)

    def stop(self) -> None:
        """Submit no more."""
        self._stopped = True
        self._wake.set()

    def serves(self, job_id: int) -> None:
        """A replica's agent has reported."""
        for slot in self._of(job_id):
            slot.served = True

    def gone(self, job_id: int) -> None:
        """A replica's agent has gone."""
        for slot in self._of(job_id):
            slot.gone = True
        self._wake.set()

    def crashed(self, job_id: int, last_line: str) -> None:
        """The training raised on a replica; too often at the same place, and no more are submitted."""
        self._crashes[last_line] += 1
        for slot in self._of(job_id):
            slot.served = False  # it came to nothing: back off
        if self._crashes[last_line] >= SAME_CRASHES and not self._stopped:
            self.stop()
            self._journal.event(
                "warning", message=f"no more replicas: {SAME_CRASHES} of them failed with: {last_line}"
            )

    async def cancel_all(self) -> None:
        """Cancel every replica job that may still be there; tries again when Slurm does not answer."""
        job_ids = [slot.job_id for slot in self._slots if slot.job_id is not None]
        for attempt in range(CANCEL_ATTEMPTS if job_ids else 0):
            try:
                await asyncio.to_thread(self._client.cancel, job_ids)
                return
            except HpctoolsError as error:
                self._complain(f"cannot cancel the replica jobs {job_ids}: {error}")
                await asyncio.sleep(2.0**attempt)

    async def find_preemptor(self, node: str, replica: int, attempts: int = 15) -> None:
        """Note who has taken a replica's node, once Slurm tells."""
        for _ in range(attempts):
            job = await self._stranger_on(node)
            if job is not None:
                by = {"job_id": job.id, "user": job.user, "account": job.account, "qos": job.qos}
                self._journal.event("preempted_by", job_id=replica, node=node, preempted_by=by)
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _stranger_on(self, node: str) -> Job | None:
        try:
            jobs = await asyncio.to_thread(self._client.jobs, nodes=[node])
        except HpctoolsError:
            return None
        own = f"hp-run:{self._spec.id}"
        strangers = [
            job for job in jobs if job.state in ("RUNNING", "CONFIGURING") and own not in job.comment
        ]
        return max(strangers, key=lambda job: job.started or 0, default=None)

    async def _look_at_queue(self) -> None:
        taken = [slot for slot in self._slots if slot.job_id is not None]
        hurry = any(slot.gone for slot in taken)
        if not taken or not (hurry or self._clock() - self._looked >= QUEUE_SECONDS):
            return
        self._looked = self._clock()
        try:
            jobs = await asyncio.to_thread(self._client.jobs, ids=[slot.job_id or 0 for slot in taken])
        except HpctoolsError as error:
            self._complain(f"cannot see the replica jobs: {error}")
            return
        active = {job.id for job in jobs if job.state in ACTIVE}
        for slot in taken:
            if slot.job_id not in active:
                slot.free(self._clock())

    async def _submit(self, slot: _Slot) -> None:
        options, script = list(self._spec.replica_options), Path(self._spec.replica_script)
        try:
            job_id = await asyncio.to_thread(self._client.submit, options, script)
        except HpctoolsError as error:
            slot.delay(self._clock())
            self._complain(f"cannot submit a replica job: {error}")
            return
        slot.job_id = job_id
        self._complaint = ""
        self._journal.job("replica", job_id)
        self._journal.event("submitted", role="replica", job_id=job_id)

    def _of(self, job_id: int) -> list[_Slot]:
        return [slot for slot in self._slots if slot.job_id == job_id]

    def _complain(self, message: str) -> None:
        """Once, not at every attempt."""
        if message != self._complaint:
            self._complaint = message
            self._journal.event("warning", message=message)


async def _wait_at_most(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except asyncio.TimeoutError:
        return

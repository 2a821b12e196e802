"""Who has taken the nodes that replicas gave up, once Slurm tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from hpctools.errors import HpctoolsError
from hpctools.slurm.client import RunClient
from hpctools.slurm.types import Job

LOOK_SECONDS = 1.0
"""Slurm starts nobody sooner, and the training needs the cores in the moment in which nodes leave it."""
ATTEMPTS = 15
CLOCK_SECONDS = 2.0  # by which Slurm's may be behind ours; it tells whole seconds

Found = Callable[[int, str, Job], None]


class Preemptors:
    """Looks for jobs of others on nodes that a run had, with one question for all nodes.

    Args:
        own: the comment of the run's own jobs.
        found: called with a replica job, its node, and the job that has that node now.
    """

    def __init__(self, client: RunClient, own: str, found: Found) -> None:
        self._client = client
        self._own = own
        self._found = found
        self._sought: dict[str, tuple[int, float, int]] = {}

    async def find(self, node: str, replica: int, since: float) -> None:
        """Look for a while; who is the first to look does it for those that come meanwhile.

        Args:
            since: when the node became free, Unix seconds: who was there before has not taken it.
        """
        first = not self._sought
        self._sought[node] = (replica, since - CLOCK_SECONDS, ATTEMPTS)
        while first and self._sought:
            await asyncio.sleep(LOOK_SECONDS)
            self._compare(await self._jobs())

    async def _jobs(self) -> Sequence[Job]:
        """Jobs of others that have some of the nodes."""
        try:
            jobs = await asyncio.to_thread(self._client.jobs, nodes=sorted(self._sought))
        except HpctoolsError:
            return ()
        return [
            job for job in jobs if job.state in ("RUNNING", "CONFIGURING") and self._own not in job.comment
        ]

    def _compare(self, jobs: Sequence[Job]) -> None:
        for node, (replica, since, attempts) in list(self._sought.items()):
            there = [job for job in jobs if node in job.nodes and (job.started or 0) >= since]
            if there:
                self._found(replica, node, max(there, key=lambda job: job.started or 0))
            if there or attempts == 1:
                del self._sought[node]
            else:
                self._sought[node] = (replica, since, attempts - 1)

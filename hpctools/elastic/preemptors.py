"""Who has taken the nodes that replicas gave up, once Slurm tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from hpctools.elastic.job_fate import Fate, fate_of
from hpctools.errors import HpctoolsError
from hpctools.slurm.client import RunClient
from hpctools.slurm.types import Job

LOOK_SECONDS = 1.0
"""Slurm starts nobody sooner, and the training needs the cores in the moment in which nodes leave it."""
ATTEMPTS = 15
CLOCK_SECONDS = 2.0  # by which Slurm's may be behind ours; it tells whole seconds

Found = Callable[[int, str, Job], None]
Explained = Callable[[int, Fate], None]


@dataclass(frozen=True)
class _Sought:
    """A node that a replica gave up.

    Attributes:
        wanted: when its agent was told, Unix seconds: a job that was submitted later has not asked for it.
        since: when the node became free: who was there before has not taken it.
    """

    replica: int
    wanted: float
    since: float
    attempts: int = ATTEMPTS


class Preemptors:
    """Looks for jobs of others on nodes that a run had, with one question for all nodes.

    Before that it asks what became of the replica jobs: one that is cancelled gets the same SIGTERM.

    Args:
        own: the comment of the run's own jobs.
        takers: QoS whose jobs may take a replica's nodes; None: not known, so any may.
        found: called with a replica job, its node, and the job that has that node now.
        explained: called with a replica job that nobody preempted, and how it ended.
    """

    def __init__(
        self,
        client: RunClient,
        own: str,
        takers: Collection[str] | None,
        found: Found,
        explained: Explained,
    ) -> None:
        self._client = client
        self._own = own
        self._takers = takers
        self._found = found
        self._explained = explained
        self._sought: dict[str, _Sought] = {}
        self._preempted: set[int] = set()  # replica jobs that nobody has ended otherwise

    async def find(self, node: str, replica: int, wanted: float, since: float) -> None:
        """Look for a while; who is the first to look does it for those that come meanwhile.

        Args:
            wanted: when the replica's agent was told that its node is wanted, Unix seconds.
            since: when the node became free, Unix seconds: who was there before has not taken it.
        """
        first = not self._sought
        self._sought[node] = _Sought(replica, wanted + CLOCK_SECONDS, since - CLOCK_SECONDS)
        if first:
            try:
                await self._look()
            finally:  # else whoever comes next would wait for one that looks no more
                self._sought = {}

    async def _look(self) -> None:
        while self._sought:
            await asyncio.sleep(LOOK_SECONDS)
            await self._explain()
            if self._sought:
                self._compare(await self._jobs(nodes=sorted(self._sought)))

    async def _explain(self) -> None:
        """Take out whom nobody preempted."""
        asked = {each.replica for each in self._sought.values()} - self._preempted
        jobs = await self._jobs(ids=sorted(asked)) if asked else None
        for replica in asked if jobs is not None else ():
            fate = fate_of(replica, jobs or ())
            if fate.wanted:
                self._sought = {node: each for node, each in self._sought.items() if each.replica != replica}
                self._explained(replica, fate)
            elif not fate.open:
                self._preempted.add(replica)

    async def _jobs(self, *, nodes: Sequence[str] = (), ids: Sequence[int] = ()) -> Sequence[Job] | None:
        """What Slurm says; None: nothing."""
        try:
            return await asyncio.to_thread(self._client.jobs, nodes=nodes, ids=ids)
        except HpctoolsError:
            return None

    def _compare(self, jobs: Sequence[Job] | None) -> None:
        for node, sought in list(self._sought.items()):
            is_last = sought.attempts == 1
            there = [job for job in jobs or () if node in job.nodes and self._may_have_taken(job, sought)]
            if there and (is_last or sought.replica in self._preempted):
                self._found(sought.replica, node, max(there, key=lambda job: job.started or 0))
                del self._sought[node]
            elif is_last:
                del self._sought[node]
            else:
                self._sought[node] = replace(sought, attempts=sought.attempts - 1)

    def _may_have_taken(self, job: Job, sought: _Sought) -> bool:
        """Whether the node may have been given up for a job, and not only have been free for it."""
        if job.state not in ("RUNNING", "CONFIGURING") or self._own in job.comment:
            return False
        if self._takers is not None and job.qos not in self._takers:
            return False
        return (job.submitted or 0) <= sought.wanted and (job.started or 0) >= sought.since

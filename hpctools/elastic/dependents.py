"""Jobs that wait for a run (`--dependency=afterok:RUN`, and the runs of an array with a limit).

Slurm knows jobs, not runs: they name the baseline job that the run had when they were submitted. When another
one takes its place they are told so before the old one ends, since its end is not the run's.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection, Mapping

from hpctools.elastic.complaints import Complaints
from hpctools.elastic.context import RunContext
from hpctools.errors import HpctoolsError
from hpctools.slurm.client import RunClient
from hpctools.slurm.dependencies import NeverSatisfied, left_of

LONGEST_BACKOFF = 60.0
_JOB = re.compile(r"(?<=:)\d+(?=[:+,?]|$)")


def renamed(dependency: str, former: Collection[int], job_id: int) -> str:
    """A dependency with one job in the place of others; the rest of it stays.

    >>> renamed("afterok:7:8,afterany:7+5?singleton", {7}, 9)
    'afterok:9:8,afterany:9+5?singleton'
    """
    return _JOB.sub(lambda found: str(job_id) if int(found[0]) in former else found[0], dependency)


def _left_of(dependency: str, finished: Collection[int]) -> str:
    """What is still to be waited for; all of it, where it can never be: that is for its owner to end."""
    try:
        return left_of(dependency, finished, ())
    except NeverSatisfied:
        return dependency


class Dependents:
    """Has the user's waiting jobs wait for the run's newest baseline job.

    Others' jobs cannot be changed, and of those that were submitted in between nothing is known: for them the
    old job ends with an exit code of its own (`EXIT_GOES_ON`), which does not fulfil `afterok`.

    Args:
        clock: seconds that only grow.
    """

    def __init__(
        self, run: RunContext, client: RunClient, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run = run
        self._client = client
        self._clock = clock
        self._told: int | None = None  # the job for which those that wait were last told to wait
        self._failures = 0
        self._not_before = 0.0
        self._complaints = Complaints(run.warn)

    async def follow(self, job_id: int) -> None:
        """Have those wait for one job of the run that wait for another; tried again when Slurm refuses."""
        if job_id == self._told or self._clock() < self._not_before:
            return
        try:
            others = await asyncio.to_thread(self._jobs) - {job_id}
            if others:
                await self._change(lambda told: renamed(told, others, job_id))
        except HpctoolsError as error:
            self._failures += 1
            self._not_before = self._clock() + min(LONGEST_BACKOFF, 2.0**self._failures)
            self._complaints.say(f"cannot have jobs that wait for this run wait for {job_id}", error)
            return
        self._told, self._failures = job_id, 0
        self._run.relieved[job_id].clear()
        for each in others:
            self._run.relieved[each].set()

    async def settle(self, unused: int) -> None:
        """The run has finished without a baseline job of its: nobody need wait for that one."""
        try:
            ended = await asyncio.to_thread(self._jobs) | {unused}
            await self._change(lambda told: _left_of(told, ended))
        except HpctoolsError as error:
            self._complaints.say("jobs that wait for this run do not learn that it has finished", error)

    def _jobs(self) -> frozenset[int]:
        """Any of them may have been named: replicas' by a coordinator before us, see `Baseline`."""
        return frozenset(job.job_id for job in self._run.folder.jobs())

    async def _change(self, change: Callable[[str], str]) -> None:
        waiting: Mapping[int, str] = await asyncio.to_thread(self._client.dependencies, self._run.spec.user)
        failed: HpctoolsError | None = None
        for waits, told in waiting.items():
            if (wanted := change(told)) != told:
                try:
                    await asyncio.to_thread(self._client.depend, waits, wanted)
                except HpctoolsError as error:
                    failed = error  # the others are told all the same
        if failed is not None:
            raise failed

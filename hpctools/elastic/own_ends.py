"""Replica jobs that Slurm ends though nobody takes them from us."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hpctools.elastic.folder import Event
from hpctools.elastic.replica_jobs import end_of
from hpctools.slurm.types import Job

CLOCK_SECONDS = 5.0  # by which ours may be behind that of slurmctld
GIVEN_BACK = "given_back"
"""The event that tells who takes over which replica jobs the run itself has cancelled: key `job_id`."""


class OwnEnds:
    """Notes the jobs that we cancel, and when Slurm ends the others because their time is up."""

    def __init__(self) -> None:
        self._cancelled: set[int] = set()
        self._ends: dict[int, float] = {}

    def begin(self, job_id: int) -> None:
        """It is about to be cancelled: its agents may hear of it before we hear that it was."""
        self._cancelled.add(job_id)

    def give_up(self, job_id: int) -> None:
        """It could not be cancelled."""
        self._cancelled.discard(job_id)

    def note(self, job: Job) -> None:
        """What Slurm says of a job that has not ended."""
        end = end_of(job)
        self._ends[job.id] = math.inf if end is None else end

    def has(self, job_id: int, now: float) -> bool:
        """Whether a job that ends now, Unix seconds, does so because of us or of its own time limit."""
        return job_id in self._cancelled or now >= self._ends.get(job_id, math.inf) - CLOCK_SECONDS


def given_back(events: Iterable[Event]) -> list[int]:
    """The replica jobs that earlier coordinators have cancelled."""
    jobs = (each.detail.get("job_id") for each in events if each.event == GIVEN_BACK)
    return [job for job in jobs if isinstance(job, int)]

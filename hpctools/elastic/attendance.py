"""Which agents of the replica jobs are there, and which jobs have for too long not had all of them.

Slurm keeps a job of several nodes as long as one of them has something to do: without us, the nodes whose
agents have gone would be held to the run's end and nobody would ask for others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LOST_SECONDS = 30.0  # for an agent that lost its connection, or is started again in its job, to come back
LATE_SECONDS = 300.0  # its node may still load an image; and where all have gone they are cut off


@dataclass
class _Job:
    """What is known of one job.

    Attributes:
        since: when the first agent came, or the first of those that have gone went.
    """

    since: float
    there: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)


class Attendance:
    """Notes who comes and goes; all times in seconds of one clock that only grows."""

    def __init__(self) -> None:
        self._jobs: dict[int, _Job] = {}

    def came(self, job_id: int, agent: str, now: float) -> None:
        """An agent has reported, for the first time or again."""
        job = self._jobs.setdefault(job_id, _Job(now))
        job.there.add(agent)
        job.gone.discard(agent)

    def went(self, job_id: int, agent: str, now: float) -> None:
        """An agent has gone."""
        job = self._jobs.setdefault(job_id, _Job(now))
        job.since = job.since if job.gone else now
        job.there.discard(agent)
        job.gone.add(agent)

    def forget(self, job_id: int) -> None:
        """The job has ended, or waits in the queue again."""
        self._jobs.pop(job_id, None)

    def wait_again(self, job_id: int, now: float) -> None:
        """Something was done about it, or nothing can be expected of it at present."""
        if job_id in self._jobs:
            self._jobs[job_id].since = now

    def has_lost(self, job_id: int) -> bool:
        """Whether an agent of the job has gone and not come back."""
        return bool(job_id in self._jobs and self._jobs[job_id].gone)

    def just_lost(self, job_id: int, now: float) -> bool:
        """Whether that was only now, so that the job itself may be about to end."""
        return self.has_lost(job_id) and now - self._jobs[job_id].since < LOST_SECONDS

    def is_incomplete(self, job_id: int, nodes: int, now: float) -> bool:
        """Whether the job has for too long had fewer agents than nodes; False when none has ever come."""
        job = self._jobs.get(job_id)
        if job is None or len(job.there) >= nodes:
            return False
        return now - job.since >= (LOST_SECONDS if job.gone and job.there else LATE_SECONDS)

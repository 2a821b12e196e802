"""Nodes that replicas give up for somebody's job, and when it is time to ask for others.

A job that preempts waits until it has all of its nodes. What is free of them until then, Slurm gives to any
job that fits there: also to the one that takes a preempted replica's place in the queue. It would take the
node from the job that it was just given up for, which would then wait until Slurm preempts it again (a minute
later on 22.05.8).
"""

from __future__ import annotations

from dataclasses import dataclass, field

START_SECONDS = 3.0
"""Slurm starts what waits within about a second of the last node's coming free (0.5 to 1.0 s measured)."""
LATE_SECONDS = 30.0
"""After the grace time a job is killed; one that is there for so long is not waited for."""


@dataclass
class Yielding:
    """Who is on the way out; all times in seconds of one clock that only grows.

    Args:
        grace: what Slurm leaves those that are preempted.
    """

    grace: float
    _leaving: dict[tuple[int, str], float] = field(default_factory=dict)
    _gone: dict[int, float] = field(default_factory=dict)

    def leaves(self, job_id: int, agent: str, now: float) -> None:
        """A replica's agent was told that its node is wanted."""
        self._leaving.setdefault((job_id, agent), now)

    def went(self, job_id: int, agent: str, now: float) -> None:
        """An agent has gone."""
        if self._leaving.pop((job_id, agent), None) is not None:
            self._gone[job_id] = now

    def taken(self, job_id: int) -> None:
        """The job that wanted the nodes of a replica job has them."""
        self._gone.pop(job_id, None)

    def lasts(self, now: float) -> bool:
        """Whether somebody may still wait for nodes that replicas give up."""
        limit = self.grace + LATE_SECONDS
        self._leaving = {each: since for each, since in self._leaving.items() if now - since < limit}
        self._gone = {job: since for job, since in self._gone.items() if now - since < START_SECONDS}
        return bool(self._leaving or self._gone)

"""Room for a replica job in Slurm's queue, and when the next attempt to fill it is made."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_BACKOFF = 60.0


@dataclass
class Slot:
    """Room for one replica job.

    Attributes:
        replica: which one it is, from 0.
        nodes: how many it has.
        job_id: the job that has it; None when it is free.
        served: whether an agent of the job ever reported, and it has not come to nothing since.
        without: nodes that the job was submitted not to get.
        failures: attempts in a row that led to nothing.
        not_before: when the next submission may be tried.
    """

    replica: int
    nodes: int
    job_id: int | None = None
    served: bool = False
    without: frozenset[str] = frozenset()
    failures: int = 0
    not_before: float = 0.0

    def free(self, now: float) -> None:
        """The job has ended."""
        if self.served:
            self.failures = 0
        else:
            self.delay(now)
        self.job_id, self.served = None, False

    def delay(self, now: float) -> None:
        """An attempt led to nothing: wait longer each time."""
        self.failures += 1
        self.not_before = now + min(LONGEST_BACKOFF, 2.0 ** (self.failures - 1))

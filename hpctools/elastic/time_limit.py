"""How long Slurm lets the run's baseline job go on: kept in the run folder, since Slurm forgets jobs."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from hpctools.elastic.replica_jobs import end_of
from hpctools.slurm.types import Job


@dataclass(frozen=True)
class TimeLimit:
    """What was last known of it.

    Attributes:
        baseline: id of the baseline job; None: there is none.
        end: when Slurm will end it, Unix seconds; None: never, or it has not begun, or it is not known.
        minutes: that it has from its beginning on; None: no limit, or it is not known.
    """

    baseline: int | None
    end: float | None = None
    minutes: int | None = None

    @classmethod
    def of(cls, job: Job) -> TimeLimit:
        """As Slurm tells."""
        return cls(job.id, end_of(job), job.time_limit)

    def end_if_begun(self, now: float) -> float | None:
        """When it ends, or would if it began now, Unix seconds; None: never, or not known."""
        if self.end is not None or self.minutes is None:
            return self.end
        return now + 60.0 * self.minutes

    def of_another(self, baseline: int, now: float) -> TimeLimit:
        """Another job takes its place, with the time that it had left, at least a minute."""
        end = self.end_if_begun(now)
        return TimeLimit(baseline, None, None if end is None else max(1, math.ceil((end - now) / 60)))


def seconds_until(end: float | None) -> float | None:
    """From now on, 0 when it is past; None for an end that never comes, or is not known."""
    return None if end is None else max(0.0, end - time.time())

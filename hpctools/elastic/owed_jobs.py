"""Jobs and the time limit that storage would not take: they are kept, and written when it does again.

A run's jobs are what its GPU hours are counted by, and what a coordinator that takes over knows of it.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from hpctools.elastic.folder import JobRecord, utc_now
from hpctools.elastic.time_limit import TimeLimit


class JobsFile(Protocol):
    """Where jobs and the time limit are written (`RunFolder`); its methods raise ElasticError."""

    def jobs(self) -> list[JobRecord]:
        """All that are noted."""
        ...

    def append_job(self, role: str, job_id: int, time: str = "") -> None:
        """Add one that was submitted then; now when empty."""
        ...

    def write_time_limit(self, limit: TimeLimit) -> None:
        """Replace what is known of it."""
        ...


class OwedJobs:
    """Writes each job once, whoever tells of it, and keeps those that cannot be written: all, a line each.

    All methods belong to one thread, but `any`.
    """

    def __init__(self, file: JobsFile) -> None:
        self._file = file
        self._owed: deque[JobRecord] = deque()

    @property
    def any(self) -> bool:
        """Whether some are still to be written."""
        return bool(self._owed)

    def add(self, role: str, job_id: int) -> None:
        """Write it, after all that are kept.

        Raises:
            ElasticError: that cannot be done now; it is kept.
        """
        self._owed.append(JobRecord(utc_now(), role, job_id))
        self.write()

    def write(self) -> None:
        """Write what is kept.

        Raises:
            ElasticError: something cannot be written yet; it, and what came after it, is kept.
        """
        noted = {job.job_id for job in self._file.jobs()} if self._owed else set()
        while self._owed:
            job = self._owed[0]
            if job.job_id not in noted:
                self._file.append_job(job.role, job.job_id, job.time)
                noted.add(job.job_id)
            self._owed.popleft()


class OwedTimeLimit:
    """Writes the baseline job's time limit, and keeps the newest while it cannot be written.

    All methods belong to one thread, but `any`.
    """

    def __init__(self, file: JobsFile) -> None:
        self._file = file
        self._owed: TimeLimit | None = None

    @property
    def any(self) -> bool:
        """Whether it is still to be written."""
        return self._owed is not None

    def add(self, limit: TimeLimit) -> None:
        """Write it, in place of one that is kept.

        Raises:
            ElasticError: that cannot be done now; it is kept.
        """
        self._owed = limit
        self.write()

    def write(self) -> None:
        """Write what is kept.

        Raises:
            ElasticError: it cannot be written yet; it is kept.
        """
        if self._owed is not None:
            self._file.write_time_limit(self._owed)
            self._owed = None

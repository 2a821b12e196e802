"""In which of the partitions that it named a waiting job may still start: pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from hpctools.conf.plan.model import DisturbedJob

Unusable = Callable[[int, str], bool]
"""Whether a job (its id) cannot start in a partition then, whatever changes."""


class Ways:
    """What keeps jobs out of which of their partitions: gathered from all changes, then asked.

    A job that named several partitions is only hindered for good where all of them are closed to it, be it by
    changes of different kinds: one by its nodes, another one by a limit on memory, a third by its QoS.
    """

    def __init__(self, unusable: Unusable = lambda job, partition: False) -> None:
        self._unusable = unusable
        self._closed: dict[int, dict[str, str]] = {}

    def close(self, partition: str, jobs: Iterable[DisturbedJob]) -> None:
        """Take note of jobs that changes would keep from starting in a partition."""
        for job in jobs:
            self._closed.setdefault(job.id, {}).setdefault(partition, job.why)

    def open(self, job: int, partition: str) -> bool:
        """Whether no change keeps a job out of a partition."""
        return partition not in self._closed.get(job, {})

    def told(self, partition: str, job: DisturbedJob) -> DisturbedJob:
        """Return what becomes of a job that cannot start in a partition.

        It only waits where another one that it named is open to it. Otherwise it is told what is in its way
        in each of them, once where that is the same everywhere.
        """
        named = job.partition.split(",")
        others = [name for name in named if self.open(job.id, name) and not self._unusable(job.id, name)]
        if others:
            why = f"only in {', '.join(others)} then; in {partition} {job.why}"
            return replace(job, waits=True, why=why)
        closed = self._closed.get(job.id, {partition: job.why})
        if set(closed.values()) == {job.why}:
            return job
        each = (f"in {name} {closed[name]}" for name in named if name in closed)
        return replace(job, why="; ".join(each))

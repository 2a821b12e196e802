"""The jobs of a run as the queue shows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from hpctools.elastic.folder import JobRecord
from hpctools.slurm.states import OVER
from hpctools.slurm.types import Job
from hpctools.submit.plan import run_comment
from hpctools.submit.recorded import is_recorded


class _HasState(Protocol):
    @property
    def state(self) -> str: ...


def is_over(job: _HasState) -> bool:
    """Whether the job has ended; the queue shows it for a while (MinJobAge)."""
    return job.state.split()[0] in OVER


def of_run(queue: Iterable[Job], run_id: str, recorded: Sequence[JobRecord]) -> list[Job]:
    """Those of a user's jobs that belong to a run.

    Found by the run's comment, so also when recording them failed. One that has lost its comment is found by
    its recorded id, unless another job has that by now.
    """
    comment, records = run_comment(run_id), {record.job_id: record for record in recorded}
    mine = (
        job
        for job in queue
        if job.comment == comment
        or (not job.comment and job.id in records and is_recorded(job, records[job.id]))
    )
    return sorted(mine, key=lambda job: job.id)

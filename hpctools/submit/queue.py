"""The jobs of a run as the queue shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from hpctools.slurm.states import OVER
from hpctools.slurm.types import Job
from hpctools.submit.plan import run_comment


class _HasState(Protocol):
    @property
    def state(self) -> str: ...


def is_over(job: _HasState) -> bool:
    """Whether the job has ended; the queue shows it for a while (MinJobAge)."""
    return job.state.split()[0] in OVER


def of_run(queue: Iterable[Job], run_id: str, recorded: set[int]) -> list[Job]:
    """Those of a user's jobs that belong to a run.

    Found by the run's comment, so also when recording them failed; and by their recorded ids, unless another
    job has such an id by now.
    """
    comment = run_comment(run_id)
    mine = (job for job in queue if job.comment == comment or (job.id in recorded and not job.comment))
    return sorted(mine, key=lambda job: job.id)

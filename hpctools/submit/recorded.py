"""Whether a job of the queue is the one that a run has recorded."""

from __future__ import annotations

import math
from datetime import datetime

from hpctools.elastic.folder import JobRecord
from hpctools.slurm.types import Job

_CLOCKS_SECONDS = 300.0  # by which slurmctld's clock may be before the one of who recorded a job


def is_recorded(job: Job, record: JobRecord) -> bool:
    """Whether a job is the one that was recorded, and not a later one with its id.

    Slurm begins again with ids, after the largest one or when its state is lost. A job is recorded once it
    has been submitted. Of one whose time of submission nobody knows that is not so sure: False.
    """
    try:
        recorded = datetime.fromisoformat(record.time).timestamp()
    except ValueError:
        return False
    return job.id == record.job_id and (job.submitted or math.inf) <= recorded + _CLOCKS_SECONDS

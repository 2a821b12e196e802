"""Jobs as the budget gets them: windows of days, each with a fingerprint; what is known is not read again.

Needs the `api` extra.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date

import polars as pl

from hpctools.slurm.accounting import JobRecord, Window
from hpctools.slurm.accounting_table import from_records, read


@dataclass(frozen=True)
class JobWindow:
    """All jobs that were known in some UTC days.

    Attributes:
        first, end: the days; `end` is exclusive.
        digest: of what was answered; equal when the answer is.
        table: reads it, columns of `JobRecord`; a job may be in several windows.
    """

    first: date
    end: date
    digest: str
    table: Callable[[], pl.DataFrame]

    @classmethod
    def of_text(cls, window: Window) -> JobWindow:
        """What sacct answered."""
        digest = hashlib.sha256(window.text.encode()).hexdigest()
        return cls(window.first, window.end, digest, lambda: read(window.text))

    @classmethod
    def of_records(cls, first: date, end: date, records: Iterable[JobRecord]) -> JobWindow:
        """Records in any order."""
        kept = sorted(records, key=lambda job: (job.cluster, job.dbindex))
        digest = hashlib.sha256(repr(kept).encode()).hexdigest()
        return cls(first, end, digest, lambda: from_records(kept))

"""Reconcile a month: fetch the bill and the jobs, store them, attribute, post what changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from api.db.bill_store import append_pulled, current_bill
from api.db.engine import writing
from api.db.job_store import append_jobs, current_jobs
from api.db.ledger import knowledge, post
from api.services.sources import BillSource, Combined, names, pull
from hpctools.budget.attribution import attribute
from hpctools.budget.month import Month, day_of
from hpctools.budget.statement import Knowledge
from hpctools.budget.tree import BudgetSite
from hpctools.slurm.accounting import JobRecord, read_jobs


class JobSource(Protocol):
    """Where jobs come from."""

    def jobs(self, month: Month, now: int) -> Iterable[JobRecord]:
        """Every job known in a month until `now` (Unix seconds), each once."""
        ...


@dataclass(frozen=True)
class Sacct:
    """Slurm's own accounting, through its command.

    Attributes:
        timeout: seconds for one query of sacct.
    """

    program: Path
    timeout: float

    def jobs(self, month: Month, now: int) -> Iterable[JobRecord]:
        """Every job known in a month until `now`, a window of days at a time."""
        end = min(month.end, day_of(now) + timedelta(days=1))
        return read_jobs(month.start, end, sacct=self.program, timeout=self.timeout)


@dataclass(frozen=True)
class Outcome:
    """What a reconciliation did.

    Attributes:
        bill_days, jobs: how many were new or had changed.
        entries: how many ledger entries were posted.
        superseded: a run with newer data was there already, nothing was stored.
    """

    month: Month
    bill_days: int = 0
    jobs: int = 0
    entries: int = 0
    superseded: bool = False


def reconcile(
    engine: Engine, site: BudgetSite, month: Month, bills: BillSource | Combined, jobs: JobSource, now: int
) -> Outcome:
    """Bring the ledger of a month to what the bill and slurmdbd say now.

    Everything is fetched first, then stored in one transaction under the writers' lock: a crash leaves all or
    nothing, two at once do the work once, and a replay of the same data changes nothing.

    Args:
        now: Unix seconds; running jobs are counted until here.

    Raises:
        UnreachableError: AWS, slurmdbd or the database does not answer.
        BudgetError: the bill or the jobs cannot be read.
    """
    bill = pull(bills, month, site.metric)
    records = tuple(jobs.jobs(month, now))
    with writing(engine) as session:
        last = knowledge(session, month, site.metric)
        if last is not None and last.as_of > now:
            return Outcome(month, superseded=True)
        days = sum(append_pulled(session, pulled, now) for pulled in bill)
        changed = append_jobs(session, records, now)
        return Outcome(month, days, changed, _post(session, site, month, names(bills), now))


def _post(session: Session, site: BudgetSite, month: Month, sources: tuple[str, ...], now: int) -> int:
    """Attribute from the store, not from what was fetched: any run can be repeated from it."""
    bill = current_bill(session, sources, site.metric, month)
    attribution = attribute(bill, current_jobs(session, month), site, month, now)
    known = Knowledge(
        as_of=now,
        billed_through=max((row.day for row in bill), default=None),
        estimated=attribution.estimated,
        coverage=attribution.coverage,
    )
    return len(post(session, month, site.metric, attribution, known))

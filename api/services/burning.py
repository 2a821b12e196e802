"""What runs now and is not billed yet: measured, stored, and known by node group's rate."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Engine, insert, select
from sqlalchemy.orm import Session

from api.db.bill_models import BillDay
from api.db.bill_store import current_frame
from api.db.budget_models import BurnReading
from api.db.engine import reading, writing
from api.db.ledger import billed_by, last_run
from hpctools.budget.bill_table import rows_of
from hpctools.budget.burn import Burn, Rate, RunningJob, burn, rates
from hpctools.budget.month import Month, day_of, day_start
from hpctools.budget.placing import place_table
from hpctools.budget.tree import BudgetSite
from hpctools.slurm.accounting import expand, read_jobs

LONGEST_DAYS = 7
"""A bill that is older says too little of what runs: no more than these days are counted as unbilled."""


class RecentJobs(Protocol):
    """Where jobs of the last days come from."""

    def since(self, day: date, now: int) -> Iterable[RunningJob]:
        """Every job that ran at some time since a UTC day."""
        ...


class SacctJobs:
    """Slurm's own accounting.

    Args:
        timeout: seconds for one query of sacct.
    """

    def __init__(self, program: Path, timeout: float) -> None:
        self._program, self._timeout = program, timeout

    def since(self, day: date, now: int) -> Iterable[RunningJob]:
        """Every job that ran at some time since a UTC day.

        Raises:
            UnreachableError: slurmdbd does not answer.
        """
        end = day_of(now) + timedelta(days=1)
        return read_jobs(day, end, sacct=self._program, timeout=self._timeout)


def current_rates(session: Session, site: BudgetSite, today: date) -> dict[str, Rate]:
    """The last effective rate of each node group, from this month's bill or the one before.

    Rows of a cluster without a group are placed first, as for the division.
    """
    sources = sorted(session.scalars(select(BillDay.source).where(BillDay.metric == site.metric).distinct()))
    month = Month.of(today)
    bills = (current_frame(session, sources, site.metric, each) for each in (month.previous, month))
    return rates([row for bill in bills for row in rows_of(place_table(bill, site))], site.currency)


def measure(engine: Engine, site: BudgetSite, jobs: RecentJobs, now: int) -> dict[str, Burn]:
    """Store what each account's jobs cost now and since the last billed day of their nodes; return it.

    Raises:
        UnreachableError: slurmdbd or the database does not answer.
    """
    today = day_of(now)
    with reading(engine) as session:
        known = current_rates(session, site, today)
        posted = _posted(session, site, today)
    earliest = today - timedelta(days=LONGEST_DAYS)
    first = {
        name: max(min(rate.billed, posted(rate.source)) + timedelta(days=1), earliest)
        for name, rate in known.items()
    }
    recent = list(jobs.since(min([*first.values(), today]), now))
    since = {name: day_start(day) for name, day in first.items()}
    found = burn(recent, site, known, since, now, expand)
    # A reading of nothing is a reading, too: what was running before does no longer.
    rows = [_row(now, name, each) for name, each in (found or {"": Burn()}).items()]
    with writing(engine) as session:
        # Another replica's timer may have measured at the same second: that is this reading.
        if session.scalar(select(BurnReading.id).where(BurnReading.at == now).limit(1)) is None:
            session.execute(insert(BurnReading), rows)
    return found


def _posted(session: Session, site: BudgetSite, today: date) -> Callable[[str], date]:
    """The last billed day of a source that the books have: what was read and not divided is in no figure.

    Where there are no books it is today; those of earlier releases do not tell their sources apart.
    """
    month = Month.of(today)
    found = (last_run(session, each, site.metric) for each in (month.previous, month))
    runs = [run for run in found if run is not None]
    of_source: dict[str, date] = {}
    for run in runs:
        of_source |= billed_by(run)
    # Runs of earlier releases, and of an older replica beside this one, tell of all sources together.
    untold = (run.billed_through for run in runs if run.billed_through and not billed_by(run))
    together = max(untold, default=date.min) if runs else today
    return lambda source: max(of_source.get(source, date.min), together)


def _row(at: int, account: str, burn: Burn) -> dict[str, Any]:
    days = {str(day): f"{amount:f}" for day, amount in burn.days.items()}
    return {"at": at, "account": account, **vars(burn), "days": json.dumps(days)}


def stored(row: BurnReading) -> Burn:
    """A reading of one account as it was measured; those of earlier releases tell no days."""
    days = {date.fromisoformat(day): Decimal(amount) for day, amount in json.loads(row.days).items()}
    return Burn(row.per_hour, row.unbilled, row.jobs, days)

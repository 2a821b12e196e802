"""How reconciliation goes: runs, sources of the bill, slurmdbd's records, what a restatement changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from api.db.bill_models import BillDay, BillPull
from api.db.engine import reading
from api.db.exact import exact_sum
from api.db.ledger import knowledge
from api.db.models import AttributionRun, JobPull, LedgerEntry
from api.paging import Page
from api.services import runs
from api.services.runs import Run
from api.services.statements import read_statement
from hpctools.budget.month import DAY_SECONDS, Month, day_of, day_start
from hpctools.budget.statement import Statement
from hpctools.budget.tree import SITE_ACCOUNT, BudgetSite

MONTHS = 3
"""The present month and those before it that are looked at."""
LATE_SECONDS = 2 * DAY_SECONDS
_RESTATEMENTS = 10


@dataclass(frozen=True)
class MonthState:
    """One month's books.

    Attributes:
        last, done: the newest run, and the newest that ended well.
        statement: of the whole site.
        coverage: part of the node time whose bill has arrived, 0 to 1; None without jobs.
    """

    month: Month
    last: Run | None
    done: Run | None
    statement: Statement
    coverage: float | None

    @property
    def done_at(self) -> int | None:
        """When it was last reconciled, Unix seconds; what was done by hand beside the service has no run."""
        return self.done.ended_at if self.done else self.statement.as_of


@dataclass(frozen=True)
class SourceState:
    """A source of the bill.

    Attributes:
        pulled_at: of the last look, Unix seconds; None for never.
        billed_through: the last day that it has rows of, in the newest month that was looked at.
        estimated: it may still change that month.
        changed_days: how many days the last look found changed.
    """

    name: str
    pulled_at: int | None
    billed_through: date | None
    estimated: bool
    row_count: int
    changed_days: int


@dataclass(frozen=True)
class JobsState:
    """What slurmdbd told.

    Attributes:
        told_at: when it last told something new, Unix seconds; None for never.
        missing: days of the present month that are over and in no window that was asked.
        late: windows of days whose records changed more than two days after their end: first and last day,
            and when.
    """

    told_at: int | None
    missing: tuple[date, ...]
    late: tuple[tuple[date, date, int], ...]


@dataclass(frozen=True)
class Restatement:
    """What one run posted of a month because something had changed.

    Attributes:
        reason: `bill`, `jobs`, `policy`, `time`, or some of them with `+`.
        amount: by how much the month's bill changed; zero where it was only divided otherwise.
        after_final: the month had been final.
    """

    month: str
    at: int
    reason: str
    entries: int
    days: int
    currency: str
    amount: Decimal
    after_final: bool


@dataclass(frozen=True)
class ReconciliationHealth:
    """All of it."""

    months: tuple[MonthState, ...]
    sources: tuple[SourceState, ...]
    jobs: JobsState
    restatements: tuple[Restatement, ...]
    failed: tuple[Run, ...]


def read_reconciliation(
    engine: Engine, site: BudgetSite, sources: Sequence[str], now: int
) -> ReconciliationHealth:
    """How the books are kept now.

    Args:
        sources: names of those that the site file has.

    Raises:
        UnreachableError: the database does not answer.
    """
    present = Month.of(day_of(now))
    months = [present]
    while len(months) < MONTHS:
        months.append(months[-1].previous)
    states = tuple(_month(engine, site, month) for month in months)
    with reading(engine) as session:
        return ReconciliationHealth(
            months=states,
            sources=tuple(_source(session, name, site.metric) for name in sources),
            jobs=_jobs(session, present, now),
            restatements=_restatements(session, site.metric),
            failed=_failed(session),
        )


def _month(engine: Engine, site: BudgetSite, month: Month) -> MonthState:
    statement = read_statement(engine, site, site.by_name[SITE_ACCOUNT], month)
    with reading(engine) as session:
        known = knowledge(session, month, site.metric)
        last, done = runs.last(session, month), runs.last(session, month, ("done",))
    used = sum(part.used for part in known.coverage.values()) if known else 0
    billed = sum(part.billed for part in known.coverage.values()) if known else 0
    return MonthState(month, last, done, statement, billed / used if used else None)


def _source(session: Session, name: str, metric: str) -> SourceState:
    pulls = select(BillPull).where(BillPull.source == name, BillPull.metric == metric)
    last = session.scalar(pulls.order_by(BillPull.id.desc()).limit(1))
    if last is None:
        return SourceState(name, None, None, True, 0, 0)
    newest = session.scalar(pulls.order_by(BillPull.month.desc(), BillPull.id.desc()).limit(1)) or last
    month = Month.parse(newest.month)
    days = select(BillDay.day, BillDay.version, BillDay.estimated, BillDay.row_count).where(
        BillDay.source == name,
        BillDay.metric == metric,
        BillDay.day >= month.start,
        BillDay.day < month.end,
    )
    current = {row.day: row for row in session.execute(days.order_by(BillDay.version))}
    billed = [row for row in current.values() if row.row_count]
    return SourceState(
        name=name,
        pulled_at=last.pulled_at,
        billed_through=max((row.day for row in billed), default=None),
        estimated=not billed or any(row.estimated for row in billed),
        row_count=newest.row_count,
        changed_days=last.changed_days,
    )


def _jobs(session: Session, month: Month, now: int) -> JobsState:
    windows = session.execute(
        select(JobPull.first, JobPull.end, JobPull.seen_at)
        .where(JobPull.end > month.previous.start)
        .order_by(JobPull.id)
    ).all()
    asked = {day for first, end, _ in windows for day in _days(first, end)}
    over = [day for day in month.days if day_start(day) + DAY_SECONDS <= now]
    late = {
        (first, end - timedelta(days=1)): seen
        for first, end, seen in _again(windows)
        if seen > day_start(end) + LATE_SECONDS
    }
    return JobsState(
        told_at=session.scalar(select(func.max(JobPull.seen_at))),
        missing=tuple(day for day in over if day not in asked),
        late=tuple((first, last, seen) for (first, last), seen in sorted(late.items())),
    )


def _again(windows: Collection[tuple[date, date, int]]) -> list[tuple[date, date, int]]:
    """Windows that were asked before with another answer."""
    known: set[tuple[date, date]] = set()
    found = []
    for first, end, seen in windows:
        if (first, end) in known:
            found.append((first, end, seen))
        known.add((first, end))
    return found


def _days(first: date, end: date) -> list[date]:
    return [first + timedelta(days=n) for n in range((end - first).days)]


def _restatements(session: Session, metric: str) -> tuple[Restatement, ...]:
    """The newest runs that changed what had been posted before."""
    changed = (
        select(
            *(LedgerEntry.run_id, LedgerEntry.reason, LedgerEntry.currency),
            *(func.count(), func.count(LedgerEntry.day.distinct()), exact_sum(LedgerEntry.amount)),
        )
        .where(LedgerEntry.metric == metric, LedgerEntry.reason.not_in(("first", "time", "")))
        .group_by(LedgerEntry.run_id, LedgerEntry.reason, LedgerEntry.currency)
        .order_by(LedgerEntry.run_id.desc(), LedgerEntry.reason)
        .limit(_RESTATEMENTS)
    )
    rows = session.execute(changed).all()
    ids = [row[0] for row in rows]
    by_id = {run.id: run for run in session.scalars(select(AttributionRun).where(AttributionRun.id.in_(ids)))}
    finals = _first_finals(session, metric, {by_id[number].month for number in ids})
    return tuple(
        Restatement(
            by_id[number].month,
            by_id[number].as_of,
            reason,
            entries,
            days,
            currency,
            amount,
            number > finals.get(by_id[number].month, number),
        )
        for number, reason, currency, entries, days, amount in rows
    )


def _first_finals(session: Session, metric: str, months: Collection[str]) -> dict[str, int]:
    query = (
        select(AttributionRun.month, func.min(AttributionRun.id))
        .where(AttributionRun.metric == metric, AttributionRun.final.is_(True))
        .where(AttributionRun.month.in_(months))
        .group_by(AttributionRun.month)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def _failed(session: Session) -> tuple[Run, ...]:
    failed, _ = runs.listed(session, Page(5), None, "failed")
    lost, _ = runs.listed(session, Page(5), None, "lost")
    return tuple(sorted((*failed, *lost), key=lambda run: -run.id)[:5])

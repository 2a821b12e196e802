"""What one job cost, day by day, and how that became known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

import polars as pl
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from api.db.day_store import Inputs, unpack
from api.db.engine import reading
from api.db.job_store import jobs_known
from api.db.models import AttributedDay, AttributionRun
from api.services.books import Books, Moment, Quality, open_books, quality
from api.services.job_costs import JOB_BY, JobCost, as_jobs, cost_table, with_jobs
from hpctools.budget.allowance import Period
from hpctools.budget.attribution_table import amount
from hpctools.budget.money import ZERO, difference
from hpctools.budget.month import day_of, day_start
from hpctools.budget.tree import Account, BudgetSite


@dataclass(frozen=True)
class JobEntry:
    """A change of what a job cost on one day.

    Attributes:
        run, as_of: the run that posted it, and the moment (Unix seconds) that it knew.
        reason: what had changed; see `api.services.entries.Entry`.
        amount: the difference to what was known before.
    """

    run: int
    as_of: int
    reason: str
    day: date
    node_group: str
    capacity: str
    currency: str
    amount: Decimal


@dataclass(frozen=True)
class KnownJob:
    """One job, or one run of a requeued job, in one account.

    Attributes:
        entries: what was posted of it for this account; they sum to what it costs.
    """

    cost: JobCost
    quality: Quality
    entries: tuple[JobEntry, ...]


def read_jobs(
    engine: Engine,
    site: BudgetSite,
    called: str,
    within: Period,
    sees: Callable[[str], bool],
    known_on: int | None = None,
) -> list[KnownJob]:
    """Jobs of a name that ran on some days, the last submitted first, each with all that it ever cost.

    Ids recycle, and a job that was requeued keeps its id: there may be several.

    Args:
        called: an id, or as users know it: `123`, `123_4`, `123+1`.
        sees: whether jobs of an account may be told.
        known_on: Unix seconds; as it was known then.

    Raises:
        UnreachableError: the database does not answer.
    """
    with reading(engine) as session:
        books = open_books(session, site.metric, within, Moment(known_on))
        found = _lives(session, books, called)
        return [
            known
            for life, keys in found
            for known in _costs(engine, session, site, life, keys, Moment(known_on, books.through))
            if sees(known.cost.account)
        ]


def _lives(session: Session, books: Books, called: str) -> list[tuple[Period, tuple[str, int]]]:
    """The days on which each of the jobs ran, and what makes it unique."""
    seen = books.as_of
    if seen is None:
        return []
    begin, end = day_start(books.period.first), day_start(books.period.end)
    is_it = pl.col("job_id") == int(called) if called.isdecimal() else pl.col("name") == called
    jobs = jobs_known(session, begin, end, seen, is_it)
    rows = jobs.sort("submitted", "dbindex", descending=True).select("cluster", "dbindex", "start", "end")
    return [
        (
            Period(day_of(start), day_of(seen if last is None else last) + timedelta(days=1)),
            (cluster, dbindex),
        )
        for cluster, dbindex, start, last in rows.iter_rows()
    ]


def _costs(
    engine: Engine, session: Session, site: BudgetSite, life: Period, key: tuple[str, int], moment: Moment
) -> list[KnownJob]:
    books = open_books(session, site.metric, life, moment)
    mine = (pl.col("cluster") == key[0]) & (pl.col("dbindex") == key[1])
    parts, places = cost_table(session, books, mine)
    costs = parts.group_by(JOB_BY).agg(pl.col("units", "used").sum()).sort(JOB_BY)
    told = with_jobs(session, books, costs)
    return [
        KnownJob(
            job,
            quality(engine, session, books, site, _account(site, job)),
            tuple(_history(session, books, mine & _whose(job))),
        )
        for job in as_jobs(told, parts.sort("day", "node_group", "capacity"), places)
    ]


def _whose(job: JobCost) -> pl.Expr:
    """Which of a job's parts are this one's: it may have been another account's before."""
    return (
        (pl.col("account") == job.account)
        & (pl.col("user") == job.user)
        & (pl.col("currency") == job.currency)
    )


def _account(site: BudgetSite, job: JobCost) -> Account:
    return site.by_name.get(job.account, Account(job.account, "lab", None))


def _history(session: Session, books: Books, mine: pl.Expr) -> Iterable[JobEntry]:
    """The differences between what the runs told of each day, in the order of the runs."""
    query = (
        select(AttributedDay, AttributionRun.as_of)
        .join(AttributionRun, AttributionRun.id == AttributedDay.run_id)
        .where(AttributedDay.metric == books.metric, AttributedDay.run_id <= books.through)
        .where(AttributedDay.day >= books.period.first, AttributedDay.day < books.period.end)
        .order_by(AttributedDay.id)
    )
    before: dict[date, Inputs] = {}
    known: defaultdict[date, dict[tuple[str, str, str], Decimal]] = defaultdict(dict)
    for day, as_of in session.execute(query):
        now = Inputs(day.bill_digest, day.jobs_digest, day.policy_digest, day.counted_to)
        parts = _parts(day, mine)
        for place in sorted({*known[day.day], *parts}):
            change = difference(parts.get(place, ZERO), known[day.day].get(place, ZERO))
            if change:
                reason = now.reason(before.get(day.day))
                yield JobEntry(day.run_id, as_of, reason, day.day, *place, change)
        before[day.day], known[day.day] = now, parts


def _parts(day: AttributedDay, mine: pl.Expr) -> dict[tuple[str, str, str], Decimal]:
    table = unpack(day.jobs).filter(mine)
    by = ["node_group", "capacity", "currency"]
    sums = table.group_by(by).agg(pl.col("units").sum())
    return {(row[0], row[1], row[2]): amount(row[3], day.places) for row in sums.iter_rows()}

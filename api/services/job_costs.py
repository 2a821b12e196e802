"""What jobs cost, out of the days that runs divided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import polars as pl
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from api.db.day_store import job_costs_of
from api.db.engine import reading
from api.db.job_store import jobs_known
from api.services.books import Books, Moment, Quality, open_books, quality
from hpctools.budget.allowance import Period
from hpctools.budget.attribution_table import amount
from hpctools.budget.month import day_start
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite
from hpctools.budget.usage import NANO

Sort = Literal["-cost", "cost", "-start", "start"]

JOB_BY = ["cluster", "dbindex", "job_id", "account", "user", "currency"]
"""What tells one job's cost apart from another's."""
_TOLD = ["name", "run", "partition", "qos", "state", "submitted", "start", "end"]


@dataclass(frozen=True)
class Wanted:
    """Which jobs, and in which order; an empty word means any.

    Attributes:
        state: as Slurm says it, for example `FAILED`.
        capacity: how nodes were paid for; only what jobs cost on such nodes is counted.
        node_group: only what jobs cost there is counted.
        run: jobs of this elastic run.
        sort: `-cost` is the dearest first.
    """

    user: str = ""
    state: str = ""
    partition: str = ""
    capacity: str = ""
    node_group: str = ""
    run: str = ""
    sort: Sort = "-cost"


@dataclass(frozen=True)
class JobPart:
    """What a job cost on one day in one node group; bill rows of these are behind it."""

    day: date
    node_group: str
    capacity: str
    amount: Decimal


@dataclass(frozen=True)
class JobCost:
    """What one job cost in some days.

    Attributes:
        node_seconds: of whole nodes, in its share of them.
        name, run: see `hpctools.slurm.accounting.JobRecord`.
        submitted, start, end: Unix seconds of the job itself; `end` is None when it ran.
        parts: sorted by day.
    """

    cluster: str
    dbindex: int
    job_id: int
    account: str
    user: str
    currency: str
    amount: Decimal
    node_seconds: Decimal
    partition: str
    qos: str
    state: str
    submitted: int
    start: int | None
    end: int | None
    name: str = ""
    run: str = ""
    parts: tuple[JobPart, ...] = ()

    @property
    def called(self) -> str:
        """As users know it."""
        return self.name or str(self.job_id)


@dataclass(frozen=True)
class JobCosts:
    """A page of jobs.

    Attributes:
        through: the last run that counts, for the pages that follow.
        total: how many jobs there are.
        sums: what all of them cost, by currency.
    """

    through: int
    total: int
    sums: Mapping[str, Decimal]
    quality: Quality
    jobs: tuple[JobCost, ...]


def job_costs(
    engine: Engine,
    site: BudgetSite,
    account: Account,
    period: Period,
    moment: Moment = Moment(),  # noqa: B008 - frozen
    wanted: Wanted = Wanted(),
    *,
    limit: int = 100,
    offset: int = 0,
) -> JobCosts:
    """What each job of an account and of those below it cost in some days.

    Raises:
        UnreachableError: the database does not answer.
    """
    with reading(engine) as session:
        books = open_books(session, site.metric, period, moment)
        table, places = cost_table(session, books, _chosen(site, account, wanted))
        costs = table.group_by(JOB_BY).agg(pl.col("units", "used").sum())
        told = with_jobs(session, books, costs).filter(_like(wanted))
        page = _sorted(told, wanted.sort).slice(offset, limit)
        parts = table.join(page.select(JOB_BY), on=JOB_BY, how="semi").sort("day", "node_group", "capacity")
        sure = quality(engine, session, books, site, account)
    by_currency = told.group_by("currency").agg(pl.col("units").sum()).sort("currency")
    sums = {currency: amount(units, places) for currency, units in by_currency.iter_rows()}
    return JobCosts(books.through, told.height, sums, sure, as_jobs(page, parts, places))


def of_account(site: BudgetSite, account: Account) -> pl.Expr:
    """The rows of an account and of those below it; all of them for the site."""
    if account.name == SITE_ACCOUNT:
        return pl.lit(True)
    return pl.col("account").is_in(sorted(site.subtree(account.name)))


def cost_table(session: Session, books: Books, wanted: pl.Expr) -> tuple[pl.DataFrame, int]:
    """What jobs cost by day: `attribution_table.JOB_COSTS` and `day`, and the places of `units`."""
    return job_costs_of(session, books.day_ids, wanted)


def with_jobs(session: Session, books: Books, costs: pl.DataFrame) -> pl.DataFrame:
    """Costs of jobs with what is known of the jobs themselves."""
    seen = books.as_of if books.as_of is not None else 0
    begin, end = day_start(books.period.first), day_start(books.period.end)
    mine = pl.col("dbindex").is_in(costs["dbindex"].unique().implode())
    jobs = jobs_known(session, begin, end, seen, mine).select("cluster", "dbindex", *_TOLD)
    return costs.join(jobs, on=["cluster", "dbindex"], how="left")


def as_jobs(costs: pl.DataFrame, parts: pl.DataFrame, places: int) -> tuple[JobCost, ...]:
    """Rows as jobs, in their order.

    Args:
        costs: columns as `with_jobs` has them.
        parts: of the same jobs, by day.
    """
    behind: defaultdict[tuple[Any, ...], list[JobPart]] = defaultdict(list)
    columns = (*JOB_BY, "day", "node_group", "capacity", "units")
    for *by, day, group, capacity, units in parts.select(columns).iter_rows():
        behind[tuple(by)].append(JobPart(day, group, capacity, amount(units, places)))
    return tuple(
        _job(row, places, tuple(behind[tuple(row[name] for name in JOB_BY)]))
        for row in costs.iter_rows(named=True)
    )


def _job(row: dict[str, Any], places: int, parts: tuple[JobPart, ...]) -> JobCost:
    known: dict[str, Any] = {name: row[name] for name in JOB_BY}
    # Of a job whose documents are gone its cost is known, and nothing else.
    known |= {name: row[name] or "" for name in ("partition", "qos", "state", "name", "run")}
    return JobCost(
        **known,
        amount=amount(row["units"], places),
        node_seconds=Decimal(row["used"]) / NANO,
        submitted=row["submitted"] or 0,
        start=row["start"],
        end=row["end"],
        parts=parts,
    )


def _chosen(site: BudgetSite, account: Account, wanted: Wanted) -> pl.Expr:
    chosen = of_account(site, account)
    for name in ("user", "capacity", "node_group"):
        word = getattr(wanted, name)
        chosen = chosen & (pl.col(name) == word) if word else chosen
    return chosen


def _like(wanted: Wanted) -> pl.Expr:
    words = [(name, getattr(wanted, name)) for name in ("state", "partition", "run")]
    return pl.all_horizontal(pl.lit(True), *(pl.col(name) == word for name, word in words if word))


def _sorted(table: pl.DataFrame, sort: Sort) -> pl.DataFrame:
    column = "units" if sort.endswith("cost") else "start"
    return table.sort(
        column, *JOB_BY, descending=[sort.startswith("-")] + [False] * len(JOB_BY), nulls_last=True
    )

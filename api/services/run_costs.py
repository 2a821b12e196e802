"""What elastic runs cost: the jobs of each together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import polars as pl
from sqlalchemy import Engine

from api.db.engine import reading
from api.services.books import Moment, Quality, open_books, quality
from api.services.job_costs import cost_table, of_account, with_jobs
from hpctools.budget.allowance import Period
from hpctools.budget.attribution_table import amount
from hpctools.budget.tree import Account, BudgetSite
from hpctools.budget.usage import NANO

_BY = ["run", "account", "user", "currency"]
_JOB = ["cluster", "dbindex", "account", "user", "currency"]


@dataclass(frozen=True)
class RunCost:
    """What the jobs of one elastic run cost in some days.

    Attributes:
        jobs: how many it had on these days.
        node_seconds: of whole nodes.
        start, end: Unix seconds of the first and the last; `end` is None when one runs.
    """

    run: str
    account: str
    user: str
    currency: str
    jobs: int
    amount: Decimal
    node_seconds: Decimal
    start: int | None
    end: int | None


@dataclass(frozen=True)
class RunCosts:
    """A page of runs, the dearest first.

    Attributes:
        through: the last reconciliation that counts, for the pages that follow.
    """

    through: int
    total: int
    quality: Quality
    runs: Sequence[RunCost]


def run_costs(
    engine: Engine,
    site: BudgetSite,
    account: Account,
    period: Period,
    moment: Moment,
    *,
    limit: int = 100,
    offset: int = 0,
) -> RunCosts:
    """What each elastic run of an account and of those below it cost in some days.

    A job says itself to which run it belongs, so a run is that of one user in one account.

    Raises:
        UnreachableError: the database does not answer.
    """
    with reading(engine) as session:
        books = open_books(session, site.metric, period, moment)
        table, places = cost_table(session, books, of_account(site, account))
        costs = table.group_by(_JOB).agg(pl.col("units", "used").sum())
        told = with_jobs(session, books, costs).filter(pl.col("run") != "")
        sure = quality(engine, session, books, site, account)
    runs = told.group_by(_BY).agg(
        pl.len().alias("jobs"),
        pl.col("units").sum(),
        pl.col("used").sum(),
        pl.col("start").min(),
        pl.when(pl.col("end").is_null().any()).then(None).otherwise(pl.col("end").max()).alias("end"),
    )
    page = runs.sort("units", *_BY, descending=[True] + [False] * len(_BY)).slice(offset, limit)
    columns = (*_BY, "jobs", "units", "used", "start", "end")
    found = [
        RunCost(run, owner, user, currency, jobs, amount(units, places), Decimal(used) / NANO, start, end)
        for run, owner, user, currency, jobs, units, used, start, end in page.select(columns).iter_rows()
    ]
    return RunCosts(books.through, runs.height, sure, found)

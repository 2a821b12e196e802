"""Figures as files, for browsers: statements, and the jobs and entries behind them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from api.deps import Ctx, Site, get_month, get_visited
from api.formats.answers import csv_file, statement_file
from api.formats.cost_tables import entries_csv, jobs_csv
from api.pages.asked import PagePeriod
from api.pages.periods import spell_period
from api.problems import ProblemError
from api.routers.costs import Word, get_wanted
from api.services.books import Moment
from api.services.entries import EntriesWanted, entries
from api.services.job_costs import Wanted, job_costs
from api.services.statements import read_statement
from hpctools.budget.attribution import Kind
from hpctools.budget.month import Month
from hpctools.budget.tree import Account

router = APIRouter(include_in_schema=False)

MOST_ROWS = 100_000
"""Of a file; more is for the API, page by page."""

Visited = Annotated[Account, Depends(get_visited)]


@router.get("/accounts/{name}/statement/{month}")
def download_statement(
    context: Ctx,
    site: Site,
    account: Visited,
    month: Annotated[Month, Depends(get_month)],
    format: Annotated[Literal["pdf", "csv", "focus"], Query()] = "pdf",
) -> Response:
    """What an account spent in a month, as it is known now, as a file."""
    statement = read_statement(context.engine, site, account, month)
    return statement_file(statement, format, site.cluster)


@router.get("/accounts/{name}/jobs.csv")
def download_jobs(
    context: Ctx,
    site: Site,
    account: Visited,
    period: PagePeriod,
    wanted: Annotated[Wanted, Depends(get_wanted)],
) -> Response:
    """The jobs behind an account's figures."""
    found = job_costs(context.engine, site, account, period, Moment(), wanted, limit=MOST_ROWS)
    _demand_whole(found.total)
    return csv_file(jobs_csv(found.jobs), f"{account.name}-jobs-{spell_period(period)}.csv")


@router.get("/accounts/{name}/entries.csv")
def download_entries(
    context: Ctx,
    site: Site,
    account: Visited,
    period: PagePeriod,
    kind: Kind | Literal[""] = "",
    node_group: Word = "",
) -> Response:
    """The entries of the ledger behind an account's figures."""
    wanted = EntriesWanted(kind or None, node_group)
    found = entries(context.engine, site, account, period, Moment(), wanted, limit=MOST_ROWS + 1)
    _demand_whole(len(found.entries))
    return csv_file(entries_csv(found.entries), f"{account.name}-entries-{spell_period(period)}.csv")


def _demand_whole(rows: int) -> None:
    """A file that ends too early looks like a whole one, and its sum is too small."""
    if rows > MOST_ROWS:
        told = f"A file has at most {MOST_ROWS:,} rows, and there are more. Choose fewer days, or the API."
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, told)

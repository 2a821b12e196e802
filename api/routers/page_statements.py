"""Figures as files, for browsers: statements, accounts, and what is behind their figures."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from api.deps import Ctx, Site, Visitor, get_month, get_visited
from api.formats.answers import csv_file, statement_file
from api.formats.cost_tables import accounts_csv, bill_csv, entries_csv, job_csv, jobs_csv
from api.pages.asked import PagePeriod
from api.pages.periods import spell_period
from api.problems import ProblemError
from api.routers.costs import Word, get_wanted
from api.routers.page_costs import JobNumber, bill_of, charged_report, visible_jobs
from api.services.books import Moment
from api.services.entries import EntriesWanted, entries
from api.services.job_costs import Wanted, job_costs
from api.services.listing import list_accounts
from api.services.month_statements import read_month_statement
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
    statement = read_month_statement(context.engine, site, account, month, context.clock())
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


@router.get("/accounts/{name}/bill.csv")
def download_bill(
    context: Ctx, site: Site, account: Visited, period: PagePeriod, node_group: Word
) -> Response:
    """The bill's rows of a node group that an account is charged with a part of."""
    charged_report(context, site, account, period, node_group)
    found = bill_of(context, site, period, node_group, limit=MOST_ROWS)
    _demand_whole(found.total)
    name = f"{account.name}-bill-{_plain(node_group)}-{spell_period(period)}.csv"
    return csv_file(bill_csv(node_group, found.lines), name)


@router.get("/accounts.csv")
def download_accounts(context: Ctx, site: Site, visitor: Visitor, period: PagePeriod) -> Response:
    """Every account that the visitor may see."""
    seen = [account for name, account in site.by_name.items() if visitor.may_see(site, name)]
    found = list_accounts(context.engine, site, seen, period, context.clock())
    return csv_file(accounts_csv(period, found), f"accounts-{spell_period(period)}.csv")


@router.get("/jobs/{number}.csv")
def download_job(
    context: Ctx, site: Site, visitor: Visitor, number: JobNumber, period: PagePeriod
) -> Response:
    """What one job cost, and how that became known."""
    return csv_file(job_csv(visible_jobs(context, site, visitor, number, period)), f"job-{number}.csv")


def _plain(name: str) -> str:
    """A name as part of a file's, without what headers or file systems take for something else."""
    return re.sub(r"[^A-Za-z0-9._-]", "", name) or "rest"


def _demand_whole(rows: int) -> None:
    """A file that ends too early looks like a whole one, and its sum is too small."""
    if rows > MOST_ROWS:
        told = f"A file has at most {MOST_ROWS:,} rows, and there are more. Choose fewer days, or the API."
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, told)

"""Pages for people: what is behind figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import HTMLResponse

from api.auth.identify import Context
from api.auth.principal import Principal
from api.deps import Ctx, Site, Visitor, get_visited
from api.pages.accounts import accounts_page
from api.pages.asked import PagePeriod
from api.pages.entries import PER_PAGE as ENTRIES
from api.pages.entries import bill_page, entries_page
from api.pages.frame import Frame, Link, frame, trail_to
from api.pages.jobs import PER_PAGE, filters_of, job_page, jobs_page
from api.pages.kept_pages import kept_page
from api.problems import not_found
from api.routers.costs import Word, get_wanted
from api.services.bill_rows import BillLines, bill_lines
from api.services.books import Moment
from api.services.entries import EntriesWanted, entries
from api.services.job_costs import Wanted, job_costs
from api.services.listing import list_accounts
from api.services.one_job import KnownJob, read_jobs
from api.services.reports import Report, read_report
from api.services.sources import names, of_site
from hpctools.budget.allowance import Period
from hpctools.budget.attribution import Kind
from hpctools.budget.month import day_of
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite

router = APIRouter(include_in_schema=False)

Visited = Annotated[Account, Depends(get_visited)]
JobNumber = Annotated[str, Path(max_length=64, pattern=r"^[1-9][0-9]{0,9}([_+][0-9]{1,10})?$")]
PageNumber = Annotated[int, Query(ge=1, le=100_000)]


@router.get("/accounts")
def show_accounts(context: Ctx, site: Site, visitor: Visitor, period: PagePeriod) -> HTMLResponse:
    """Every account that the visitor may see."""

    def made() -> str:
        around = frame(site, visitor, "/accounts", (), period, day_of(context.clock()))
        seen = [account for name, account in site.by_name.items() if visitor.may_see(site, name)]
        return accounts_page(around, list_accounts(context.engine, site, seen, period, context.clock()))

    return HTMLResponse(kept_page(context, site, ("accounts", visitor, period), made))


@router.get("/accounts/{name}/jobs")
def show_jobs(
    context: Ctx,
    site: Site,
    visitor: Visitor,
    account: Visited,
    period: PagePeriod,
    wanted: Annotated[Wanted, Depends(get_wanted)],
    page: PageNumber = 1,
) -> HTMLResponse:
    """The jobs behind an account's figures."""
    found = job_costs(
        context.engine, site, account, period, Moment(), wanted, limit=PER_PAGE, offset=(page - 1) * PER_PAGE
    )
    around = _below(context, site, visitor, account, period, "Jobs", filters_of(wanted))
    return HTMLResponse(jobs_page(around, site, account, found, wanted, page))


@router.get("/accounts/{name}/entries")
def show_entries(
    context: Ctx,
    site: Site,
    visitor: Visitor,
    account: Visited,
    period: PagePeriod,
    kind: Kind | Literal[""] = "",
    node_group: Word = "",
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
) -> HTMLResponse:
    """The entries of the ledger behind an account's figures."""
    wanted = EntriesWanted(kind or None, node_group)
    found = entries(context.engine, site, account, period, Moment(), wanted, limit=ENTRIES + 1, after=after)
    keep = {"kind": kind, "node_group": node_group}
    around = _below(context, site, visitor, account, period, "Entries of the ledger", keep)
    report = read_report(context.engine, site, account, period)
    return HTMLResponse(entries_page(around, site, report, found, wanted, not after))


@router.get("/accounts/{name}/bill")
def show_bill(
    context: Ctx,
    site: Site,
    visitor: Visitor,
    account: Visited,
    period: PagePeriod,
    node_group: Word,
    page: PageNumber = 1,
) -> HTMLResponse:
    """The bill's rows of a node group that an account is charged with a part of."""
    report = charged_report(context, site, account, period, node_group)
    found = bill_of(context, site, period, node_group, limit=ENTRIES, offset=(page - 1) * ENTRIES)
    keep = {"node_group": node_group}
    around = _below(context, site, visitor, account, period, f"Bill of {node_group}", keep)
    return HTMLResponse(bill_page(around, report, node_group, found, page))


@router.get("/jobs/{number}")
def show_job(
    context: Ctx,
    site: Site,
    visitor: Visitor,
    number: JobNumber,
    period: PagePeriod,
) -> HTMLResponse:
    """What one job cost, and how that became known."""
    found = visible_jobs(context, site, visitor, number, period)
    account = site.by_name.get(found[0].cost.account)
    rest = Link(f"Job {number}", "")
    trail = trail_to(site, visitor, account, period, rest) if account else (rest,)
    around = frame(site, visitor, "", trail, period)
    return HTMLResponse(job_page(around, site, number, found))


def charged_report(
    context: Context, site: BudgetSite, account: Account, period: Period, node_group: str
) -> Report:
    """What an account spent, if it is charged with a part of a node group's bill.

    Raises:
        ProblemError: 404, it is not.
    """
    report = read_report(context.engine, site, account, period)
    if node_group not in {each.node_group for each in report.slices} and account.name != SITE_ACCOUNT:
        raise not_found("bill of a node group of this name for this account in these days")
    return report


def bill_of(
    context: Context, site: BudgetSite, period: Period, node_group: str, *, limit: int, offset: int = 0
) -> BillLines:
    """The bill's rows of a node group."""
    sources = names(of_site(context.site_file.declared(), site.metric))
    return bill_lines(context.engine, site, sources, period, node_group, limit=limit, offset=offset)


def visible_jobs(
    context: Context, site: BudgetSite, visitor: Principal, number: str, period: Period
) -> list[KnownJob]:
    """Jobs with a number, of the accounts that the visitor may see.

    Raises:
        ProblemError: 404, there is none.
    """

    def sees(account: str) -> bool:
        return visitor.may_see(site, account)

    found = read_jobs(context.engine, site, number, period, sees)
    if not found:
        raise not_found("job with this number, with a part of the bill in these days,")
    return found


def _below(
    context: Context,
    site: BudgetSite,
    visitor: Principal,
    account: Account,
    period: Period,
    name: str,
    keep: Mapping[str, str],
) -> Frame:
    """The frame of a page that belongs to an account's."""
    trail = trail_to(site, visitor, account, period, Link(name, ""))
    return frame(site, visitor, "", trail, period, day_of(context.clock()), keep)

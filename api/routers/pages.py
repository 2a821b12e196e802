"""Pages for people."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse

from api.auth.identify import Context
from api.auth.principal import Principal
from api.deps import Ctx, Site, Visitor, get_visited, own_account
from api.pages.asked import PagePeriod
from api.pages.budget import budget_page
from api.pages.frame import frame, trail_to
from api.pages.periods import months_of
from api.services.statements import read_statement
from hpctools.budget.allowance import Period
from hpctools.budget.month import day_of
from hpctools.budget.tree import Account, BudgetSite

router = APIRouter(include_in_schema=False)


@router.get("/")
def overview(context: Ctx, site: Site, visitor: Visitor, period: PagePeriod) -> HTMLResponse:
    """The visitor's own account: the site for an administrator, the department for its head."""
    return _page(context, site, visitor, own_account(site, visitor), period, "/")


@router.get("/accounts/{name}")
def account_page(
    context: Ctx,
    site: Site,
    visitor: Visitor,
    account: Annotated[Account, Depends(get_visited)],
    period: PagePeriod,
) -> HTMLResponse:
    """One account."""
    return _page(context, site, visitor, account, period, "")


def _page(
    context: Context, site: BudgetSite, visitor: Principal, account: Account, period: Period, here: str
) -> HTMLResponse:
    statement = read_statement(context.engine, site, account, months_of(period)[-1])
    trail = trail_to(site, visitor, account, period)
    around = frame(site, visitor, here, trail, period, day_of(context.clock()))
    return HTMLResponse(budget_page(around, site, statement))

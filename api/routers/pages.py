"""Pages for people."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse

from api.auth.identify import Context
from api.auth.principal import Principal
from api.deps import Ctx, Site, Visitor, get_page_month, get_visited, own_account
from api.pages.budget import budget_page
from api.services.statements import read_statement
from hpctools.budget.month import Month, day_of
from hpctools.budget.tree import Account, BudgetSite

router = APIRouter(include_in_schema=False)


@router.get("/")
def overview(
    context: Ctx, site: Site, visitor: Visitor, month: Annotated[Month, Depends(get_page_month)]
) -> HTMLResponse:
    """The visitor's own account: the site for an administrator, the department for its head."""
    return _page(context, site, visitor, own_account(site, visitor), month)


@router.get("/accounts/{name}")
def account_page(
    context: Ctx,
    site: Site,
    visitor: Visitor,
    account: Annotated[Account, Depends(get_visited)],
    month: Annotated[Month, Depends(get_page_month)],
) -> HTMLResponse:
    """One account."""
    return _page(context, site, visitor, account, month)


def _page(
    context: Context, site: BudgetSite, visitor: Principal, account: Account, month: Month
) -> HTMLResponse:
    statement = read_statement(context.engine, site, account, month)
    lineage = reversed(site.lineage(account.name)[1:])
    above = [site.by_name[name] for name in lineage if visitor.may_see(site, name)]
    present = Month.of(day_of(context.clock()))
    return HTMLResponse(budget_page(site, statement, above, present))

"""Pages for people: what accounts spent."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, Response

from api.auth.identify import Context
from api.auth.principal import Principal
from api.deps import Ctx, Site, Visitor, get_visited, own_account
from api.one_look import OneLookRoute
from api.one_way import OneWayRoute
from api.pages import account as account_pages
from api.pages.asked import PagePeriod
from api.pages.chart import Size, trend_svg
from api.pages.frame import frame, trail_to
from api.pages.kept_pages import kept_page
from api.pages.render import source
from api.services.overview import read_overview
from api.services.reports import read_report
from api.services.standing import read_standing
from hpctools.budget.allowance import Period
from hpctools.budget.month import day_of
from hpctools.budget.tree import Account, BudgetSite


class _Route(OneWayRoute, OneLookRoute):
    pass


router = APIRouter(include_in_schema=False, route_class=_Route)

Visited = Annotated[Account, Depends(get_visited)]


@router.get("/")
async def overview(context: Ctx, site: Site, visitor: Visitor, period: PagePeriod) -> HTMLResponse:
    """The visitor's own account: the site for an administrator, the department for its head."""
    account = own_account(site, visitor)
    return _page(context, site, visitor, account, period, "/")


@router.get("/accounts/{name}")
async def account_page(
    context: Ctx, site: Site, visitor: Visitor, account: Visited, period: PagePeriod
) -> HTMLResponse:
    """One account."""
    here = "/" if account == own_account(site, visitor) else ""
    return _page(context, site, visitor, account, period, here)


@router.get("/accounts/{name}/trend.svg")
async def trend(
    context: Ctx, site: Site, account: Visited, period: PagePeriod, size: Size = "wide"
) -> Response:
    """The drawing of how an account's spending went."""

    def made() -> str:
        report = read_report(context.engine, site, account, period)
        standing = read_standing(context.engine, site, report, context.clock())
        return trend_svg(account_pages.trend_of(report, standing), size)

    return Response(
        kept_page(context, site, ("trend", account.name, period, size), made), media_type="image/svg+xml"
    )


@router.get("/pages.js")
async def script() -> Response:
    """What makes pages better; they work without."""
    return Response(
        source("pages.js"), media_type="text/javascript", headers={"Cache-Control": "max-age=3600"}
    )


def _page(
    context: Context, site: BudgetSite, visitor: Principal, account: Account, period: Period, here: str
) -> HTMLResponse:
    def made() -> str:
        shown = read_overview(context.engine, site, account, period, context.clock())
        trail = trail_to(site, visitor, account, period)
        around = frame(site, visitor, here, trail, period, day_of(context.clock()))
        return account_pages.account_page(around, site, shown)

    return HTMLResponse(kept_page(context, site, ("account", visitor, account.name, period, here), made))

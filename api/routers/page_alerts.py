"""The page of alerts."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response

from api.deps import Ctx, Site, Visitor
from api.formats.answers import csv_stream
from api.pages.alerts import alerts_csv, alerts_page
from api.pages.frame import frame
from api.paging import MOST, every
from api.services.alert_history import history, standings

router = APIRouter(include_in_schema=False)

_PAGE = 50

Before = Annotated[int | None, Query(ge=1, lt=2**63)]


@router.get("/alerts")
def show_alerts(
    context: Ctx,
    site: Site,
    visitor: Visitor,
    before: Before = None,
    format: Annotated[Literal["csv"] | None, Query()] = None,
) -> Response:
    """Alerts of the accounts that the visitor may see."""
    seen = [account for name, account in site.by_name.items() if visitor.may_see(site, name)]
    names = [account.name for account in seen]
    if format == "csv":
        told = every(
            lambda before: history(context.engine, names, before=before, limit=MOST), lambda each: each.row.id
        )
        return csv_stream(alerts_csv(told), "alerts.csv")
    found = history(context.engine, names, before=before, limit=_PAGE + 1)
    older = found[_PAGE - 1].row.id if len(found) > _PAGE else None
    standing = standings(context.engine, site, seen, context.clock())
    return HTMLResponse(alerts_page(frame(site, visitor, "/alerts"), site, standing, found[:_PAGE], older))

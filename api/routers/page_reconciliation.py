"""The page of reconciliation, for administrators."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from api.auth.principal import Principal
from api.db.engine import reading, writing
from api.deps import Ctx, Site, Visitor, month_of
from api.formats.answers import csv_stream
from api.pages.frame import frame
from api.pages.reconciliation import Settings, reconciliation_page, runs_csv
from api.paging import Page
from api.posting import Sender, form_token, root_of
from api.problems import ProblemError, forbidden
from api.services import runs
from api.services.alert_history import undelivered
from api.services.reconciliation_health import read_reconciliation
from api.services.sources import names, of_site
from hpctools.budget.month import day_start

router = APIRouter(include_in_schema=False)

_RUNS = 20


@router.get("/reconciliation")
def show_reconciliation(
    request: Request,
    context: Ctx,
    site: Site,
    visitor: Visitor,
    format: Annotated[Literal["csv"] | None, Query()] = None,
) -> Response:
    """How the books are kept."""
    _demand_admin(visitor)
    if format == "csv":
        return csv_stream(runs_csv(runs.every(context.engine)), "reconciliations.csv")
    with reading(context.engine) as session:
        found, _ = runs.listed(session, Page(_RUNS), None, None)
    settings, now = request.app.state.settings, context.clock()
    sources = names(of_site(context.site_file.declared(), site.metric, settings.bill_scope))
    page = reconciliation_page(
        frame(site, visitor, "/reconciliation"),
        read_reconciliation(context.engine, site, sources, now),
        found,
        Settings(settings.reconcile_every, undelivered(context.engine)),
        now,
        form_token(request),
    )
    return HTMLResponse(page)


@router.post("/reconciliation")
def reconcile_now(
    request: Request, context: Ctx, sender: Sender, month: Annotated[str, Form(max_length=7)]
) -> Response:
    """Queue a month; the page then tells what becomes of it."""
    _demand_admin(sender)
    wanted, now = month_of(month), context.clock()
    if day_start(wanted.start) > now:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, f"{wanted} has not begun.")
    with writing(context.engine) as session:
        runs.ask(session, wanted, sender, now)
    request.app.state.scheduler.wake()
    return RedirectResponse(f"{root_of(request)}/reconciliation#runs", HTTPStatus.SEE_OTHER)


def _demand_admin(visitor: Principal) -> None:
    if not visitor.is_admin:
        raise forbidden("admin")

"""Reconciliations: what was done, and one more, please."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from api.db.engine import reading, writing
from api.deps import Admin, Ctx
from api.paging import Paged
from api.problems import ProblemError, not_found
from api.queries import StrictRoute
from api.routers import problems
from api.schemas.access import MonthText, ReconciliationIn, ReconciliationOut, ReconciliationsOut
from api.services import runs
from api.services.runs import State
from hpctools.budget.month import Month, day_start

router = APIRouter(prefix="/v1/reconciliations", tags=["operation"], route_class=StrictRoute)


@router.get("", responses=problems(401, 403, 422))
def list_reconciliations(
    context: Ctx,
    admin: Admin,
    page: Paged,
    month: Annotated[MonthText | None, Query()] = None,
    state: Annotated[State | None, Query()] = None,
) -> ReconciliationsOut:
    """Reconciliations, the newest first."""
    with reading(context.engine) as session:
        found, following = runs.listed(session, page, Month.parse(month) if month else None, state)
    return ReconciliationsOut(reconciliations=[ReconciliationOut.of(run) for run in found], next=following)


@router.post("", status_code=HTTPStatus.ACCEPTED, responses=problems(401, 403, 409, 413, 422))
def start_reconciliation(
    context: Ctx, admin: Admin, wanted: ReconciliationIn, request: Request, response: Response
) -> ReconciliationOut:
    """Queue a month; `Location` tells what becomes of it. One that is queued already is not queued twice."""
    month, now = Month.parse(wanted.month), context.clock()
    if day_start(month.start) > now:
        told = {"field": "body.month", "message": f"{month} has not begun"}
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, f"{month} has not begun.", errors=(told,))
    with writing(context.engine) as session:
        run = runs.ask(session, month, admin, now)
    request.app.state.scheduler.wake()
    response.headers["Location"] = f"{request.scope.get('root_path', '')}/v1/reconciliations/{run.id}"
    return ReconciliationOut.of(run)


@router.get("/{number}", responses=problems(401, 403, 404, 422))
def get_reconciliation(
    context: Ctx, admin: Admin, number: Annotated[int, Path(ge=1, lt=2**63, examples=[412])]
) -> ReconciliationOut:
    """One reconciliation, and how far it is."""
    with reading(context.engine) as session:
        run = runs.get(session, number)
    if run is None:
        raise not_found("reconciliation of this number")
    return ReconciliationOut.of(run)

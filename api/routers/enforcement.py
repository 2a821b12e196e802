"""Enforcement: plan, apply, undo. Running jobs are never touched."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request

from api.deps import Ctx, Enforcer, Site, visible_account
from api.problems import ProblemError
from api.queries import StrictRoute
from api.routers import problems
from api.schemas.alert import EnforcementOut, StepOut
from api.services.budgets import Change
from api.services.enforcement import Limits, apply, give_back, make_plan
from hpctools.budget.tree import SITE_ACCOUNT
from hpctools.errors import BudgetError, CommandError

_log = logging.getLogger("hpctools.api")

router = APIRouter(prefix="/v1/enforcement", tags=["enforcement"], route_class=StrictRoute)


def get_slurm(request: Request, site: Site) -> Limits:
    """The cluster."""
    limits: Limits = request.app.state.limits_of(site.cluster)
    return limits


Slurm = Annotated[Limits, Depends(get_slurm)]


@router.get("/plan", responses=problems(401, 403, 503))
def plan_enforcement(context: Ctx, site: Site, principal: Enforcer, slurm: Slurm) -> EnforcementOut:
    """What would be done now to keep accounts to their budgets; nothing is changed."""
    visible_account(site, principal, SITE_ACCOUNT)
    with _refusing():
        return EnforcementOut.of(make_plan(context.engine, site, slurm, context.clock()))


@router.post("/apply", responses=problems(401, 403, 409, 503))
def apply_enforcement(context: Ctx, site: Site, principal: Enforcer, slurm: Slurm) -> EnforcementOut:
    """Do it, and read back what became of it."""
    visible_account(site, principal, SITE_ACCOUNT)
    with _refusing():
        return EnforcementOut.of(apply(context.engine, site, slurm, Change(principal, context.clock())))


@router.post("/accounts/{name}/undo", responses=problems(401, 403, 404, 409, 422, 503))
def undo_enforcement(
    context: Ctx,
    site: Site,
    principal: Enforcer,
    slurm: Slurm,
    name: Annotated[str, Path(max_length=128, examples=["nlp"])],
) -> list[StepOut]:
    """Give back what was taken for an account's budget. The next apply takes it again if nothing changed."""
    account = visible_account(site, principal, name)
    with _refusing():
        steps = give_back(context.engine, site, slurm, account.name, Change(principal, context.clock()))
    return [StepOut.of(step) for step in steps]


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except BudgetError as error:
        raise ProblemError(HTTPStatus.CONFLICT, f"{error}.") from None
    except CommandError as error:
        _log.error("Slurm: %s", error)
        raise ProblemError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "Slurm does not do what it is told. The log tells the operator more.",
        ) from None

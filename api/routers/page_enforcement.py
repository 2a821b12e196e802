"""The page of enforcement."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response

from api.auth.identify import Context
from api.deps import Ctx, Site, Visitor
from api.formats.answers import csv_stream
from api.pages.enforcement import Asked, acts_csv, enforcement_page
from api.pages.frame import frame
from api.paging import MOST, every
from api.problems import forbidden
from api.routers.enforcement import Slurm
from api.services.enforced import acts_of, kept_accounts
from api.services.enforcement import Limits, make_plan
from hpctools.budget.tree import SITE_ACCOUNT, BudgetSite
from hpctools.errors import CommandError

router = APIRouter(include_in_schema=False)


@router.get("/enforcement")
def show_enforcement(
    context: Ctx,
    site: Site,
    visitor: Visitor,
    slurm: Slurm,
    plan: Annotated[Literal["now"] | None, Query()] = None,
    format: Annotated[Literal["csv"] | None, Query()] = None,
) -> Response:
    """What keeps the accounts that the visitor may see to their budgets; Slurm is asked on request only."""
    seen = [account for name, account in site.by_name.items() if visitor.may_see(site, name)]
    names = [account.name for account in seen]
    if format == "csv":
        acts = every(lambda before: acts_of(context.engine, names, MOST, before=before), lambda act: act.id)
        return csv_stream(acts_csv(acts), "enforcement.csv")
    may_ask = visitor.may("enforce", site, SITE_ACCOUNT)
    if plan is not None and not may_ask:
        raise forbidden("enforce")
    page = enforcement_page(
        frame(site, visitor, "/enforcement"),
        site,
        kept_accounts(context.engine, site, seen, context.clock()),
        acts_of(context.engine, names),
        may_ask=may_ask,
        asked=_ask(context, site, slurm) if plan else None,
    )
    return HTMLResponse(page)


def _ask(context: Context, site: BudgetSite, slurm: Limits) -> Asked:
    try:
        planned = make_plan(context.engine, site, slurm, context.clock())
    except CommandError as error:
        return Asked(problem=f"Slurm does not answer: {error.message}. Look at slurmdbd and slurmctld.")
    problem = f"Nothing would be done: {planned.frozen}." if planned.frozen else ""
    return Asked(planned.steps, problem)

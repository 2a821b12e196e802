"""One job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from api.deps import Bearer, Ctx, Site
from api.periods import KnownOn
from api.problems import not_found
from api.routers import problems
from api.schemas.access import MonthText
from api.schemas.job import JobOut, JobsOut
from api.services.books import last_days, month_period
from api.services.one_job import read_jobs
from hpctools.budget.month import Month

router = APIRouter(prefix="/v1/jobs", tags=["costs"])

MONTHS = 3


@router.get("/{number}", responses=problems(401, 404, 422))
def get_jobs(
    context: Ctx,
    site: Site,
    principal: Bearer,
    known_on: KnownOn,
    number: Annotated[int, Path(ge=1, lt=2**32, examples=[48211])],
    month: Annotated[
        MonthText | None,
        Query(
            description="A month in which it ran; without one, the present and the two before are looked at."
        ),
    ] = None,
) -> JobsOut:
    """What a job cost, day by day, and every change of that with its reason.

    Job ids recycle, and a job that was requeued keeps its id: there may be several.
    """
    within = month_period(Month.parse(month)) if month else last_days(context.clock(), MONTHS)

    def sees(account: str) -> bool:
        return principal.may_see(site, account)

    found = read_jobs(context.engine, site, number, within, sees, known_on)
    if not found:
        raise not_found("job with this id, with a bill, in these months")
    return JobsOut(jobs=[JobOut.of_known(job) for job in found])

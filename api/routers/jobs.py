"""One job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from api.deps import Bearer, Ctx, Site
from api.periods import KnownOn
from api.problems import not_found
from api.queries import StrictRoute
from api.routers import problems
from api.schemas.access import MonthText
from api.schemas.job import JobOut, JobsOut
from api.services.books import last_days, month_period
from api.services.one_job import read_jobs
from hpctools.budget.month import Month

router = APIRouter(prefix="/v1/jobs", tags=["costs"], route_class=StrictRoute)

MONTHS = 3


@router.get("/{job_id}", responses=problems(401, 404, 422))
def get_jobs(
    context: Ctx,
    site: Site,
    principal: Bearer,
    known_on: KnownOn,
    job_id: Annotated[
        str,
        Path(
            pattern=r"^[1-9][0-9]{0,9}([_+][0-9]{1,10})?$",
            description="As users know it: 48211, 48211_4, 48211+1.",
            examples=["48211"],
        ),
    ],
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

    found = read_jobs(context.engine, site, job_id, within, sees, known_on)
    if not found:
        raise not_found("job with this id, with a bill, in these months")
    return JobsOut(jobs=[JobOut.of_known(job) for job in found])

"""What is behind an account's figures: jobs, and entries of the ledger."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from api.deps import Ctx, Site, get_account
from api.paging import Page, Paged
from api.periods import Days, KnownOn
from api.routers import problems
from api.schemas.cost import (
    EntriesOut,
    EntryOut,
    JobCostOut,
    JobCostsOut,
    PeriodOut,
    QualityOut,
    RunCostOut,
    RunCostsOut,
    SumOut,
)
from api.services.books import Moment
from api.services.entries import EntriesWanted, entries
from api.services.job_costs import Sort, Wanted, job_costs
from api.services.run_costs import run_costs
from hpctools.budget.attribution import Kind
from hpctools.budget.tree import Account

router = APIRouter(prefix="/v1/accounts", tags=["costs"])

Seen = Annotated[Account, Depends(get_account)]
# Nothing that Slurm or a bill names has more; no name has control characters, which PostgreSQL may not take.
Word = Annotated[str, Query(max_length=128, pattern=r"^[ -~]*$")]


def get_wanted(
    user: Annotated[Word, Query(description="Only this one's.", examples=["nlp1"])] = "",
    state: Annotated[Word, Query(description="Slurm's word.", examples=["FAILED"])] = "",
    partition: Annotated[Word, Query(examples=["nlp"])] = "",
    capacity: Annotated[
        Word, Query(description="Only what they cost on nodes paid for so.", examples=["spot"])
    ] = "",
    node_group: Annotated[Word, Query(description="Only what they cost there.", examples=["reserved"])] = "",
    run: Annotated[Word, Query(description="Jobs of this elastic run.", examples=["train-1a2b3c"])] = "",
    sort: Annotated[Sort, Query(description="`-cost`: the dearest first.")] = "-cost",
) -> Wanted:
    """Which jobs, and in which order."""
    return Wanted(user, state, partition, capacity, node_group, run, sort)


@router.get("/{name}/jobs", responses=problems(401, 404, 422))
def list_jobs(
    context: Ctx,
    site: Site,
    account: Seen,
    period: Days,
    known_on: KnownOn,
    page: Paged,
    request: Request,
    wanted: Annotated[Wanted, Depends(get_wanted)],
) -> JobCostsOut:
    """What each job of an account, and of those below it, cost in some days.

    All pages are of the moment of the first one: what is posted meanwhile is on none of them.
    """
    listing = _listing(request, period)
    through, offset = _begin(page, listing)
    at = Moment(known_on, through)
    found = job_costs(context.engine, site, account, period, at, wanted, limit=page.limit + 1, offset=offset)
    numbered = list(enumerate(found.jobs, offset + 1))
    jobs, following = page.next(listing, numbered, lambda each: (found.through, each[0]))
    return JobCostsOut(
        period=PeriodOut.of(period),
        quality=QualityOut.of(found.quality),
        total=found.total,
        sums=[SumOut(amount=f"{money:f}", currency=code) for code, money in found.sums.items()],
        jobs=[JobCostOut.of(job) for _, job in jobs],
        next=following,
    )


@router.get("/{name}/runs", responses=problems(401, 404, 422))
def list_runs(
    context: Ctx,
    site: Site,
    account: Seen,
    period: Days,
    known_on: KnownOn,
    page: Paged,
    request: Request,
) -> RunCostsOut:
    """What each elastic run of an account, and of those below it, cost in some days, the dearest first.

    `jobs` with `run` has the jobs of one. All pages are of the moment of the first one.
    """
    listing = _listing(request, period)
    through, offset = _begin(page, listing)
    at = Moment(known_on, through)
    found = run_costs(context.engine, site, account, period, at, limit=page.limit + 1, offset=offset)
    numbered = list(enumerate(found.runs, offset + 1))
    runs, following = page.next(listing, numbered, lambda each: (found.through, each[0]))
    return RunCostsOut(
        period=PeriodOut.of(period),
        quality=QualityOut.of(found.quality),
        total=found.total,
        runs=[RunCostOut.of(run) for _, run in runs],
        next=following,
    )


@router.get("/{name}/entries", responses=problems(401, 404, 422))
def list_entries(
    context: Ctx,
    site: Site,
    account: Seen,
    period: Days,
    known_on: KnownOn,
    page: Paged,
    request: Request,
    kind: Kind | None = None,
    node_group: Annotated[Word, Query(examples=["reserved"])] = "",
) -> EntriesOut:
    """What was posted for an account, and for those below it, about some days, each with its reason.

    `jobs` with the same day and node group has the jobs behind an entry of the kind `attributed`. All pages
    are of the moment of the first one.
    """
    listing = _listing(request, period)
    through, after = _begin(page, listing)
    wanted = EntriesWanted(kind, node_group)
    at = Moment(known_on, through)
    found = entries(context.engine, site, account, period, at, wanted, limit=page.limit + 1, after=after)
    told, following = page.next(listing, found.entries, lambda entry: (found.through, entry.id))
    return EntriesOut(
        period=PeriodOut.of(period), entries=[EntryOut.of(entry) for entry in told], next=following
    )


def _begin(page: Page, listing: str) -> tuple[int | None, int]:
    """The run that a page is of, and where in the list it begins."""
    key = page.after(listing, [int, int])
    return (int(key[0]), max(0, int(key[1]))) if key else (None, 0)


def _listing(request: Request, period: object) -> str:
    """What is listed: the path with all filters. A month that nobody named is that of the first page."""
    filters = sorted((k, v) for k, v in request.query_params.multi_items() if k not in ("cursor", "limit"))
    return f"{request.url.path} {filters} {period}"

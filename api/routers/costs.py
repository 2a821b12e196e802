"""What is behind an account's figures: jobs, and entries of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Query, Request

from api.deps import Ctx, Site, get_account
from api.paging import Page, Paged
from api.periods import Days, KnownOn
from api.queries import StrictRoute
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
from hpctools.budget.allowance import Period
from hpctools.budget.attribution import Kind
from hpctools.budget.tree import Account

router = APIRouter(prefix="/v1/accounts", tags=["costs"], route_class=StrictRoute)

Seen = Annotated[Account, Depends(get_account)]
# Nothing that Slurm or a bill names has more; no name has control characters, which PostgreSQL may not take.
Word = Annotated[str, Query(max_length=128, pattern=r"^[ -~]*$")]

T = TypeVar("T")


async def get_wanted(
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


@dataclass(frozen=True)
class Part:
    """Which part of a list about some days a request asks for, and of which moment.

    Attributes:
        listing: what is listed: the path, every filter and the days.
        moment: the same for all pages: what is posted meanwhile is on none of them.
        after: what the page before ended with; 0 on the first.
    """

    page: Page
    period: Period
    listing: str
    moment: Moment
    after: int

    def next(self, found: Sequence[T], through: int, key: Callable[[T], int]) -> tuple[list[T], str | None]:
        """This page's items, and the cursor of the next page.

        Args:
            found: one more than a page has, if there are more.
            through: the last run that counts.
            key: of an item, for `after`.
        """
        return self.page.next(self.listing, found, lambda item: (through, key(item)))

    def numbered(self, found: Sequence[T], through: int) -> tuple[list[T], str | None]:
        """`next` of items that have no key but their place in the list."""
        items, following = self.next(list(enumerate(found, self.after + 1)), through, lambda each: each[0])
        return [item for _, item in items], following


async def get_part(request: Request, period: Days, known_on: KnownOn, page: Paged) -> Part:
    """The part of a list that a request asks for. A month that nobody named is that of the first page."""
    filters = sorted((k, v) for k, v in request.query_params.multi_items() if k not in ("cursor", "limit"))
    listing = f"{request.url.path} {filters} {period}"
    key = page.after(listing, [int, int])
    through, after = (int(key[0]), max(0, int(key[1]))) if key else (None, 0)
    return Part(page, period, listing, Moment(known_on, through), after)


Asked = Annotated[Part, Depends(get_part)]


@router.get("/{name}/jobs", responses=problems(401, 404, 422))
def list_jobs(
    context: Ctx, site: Site, account: Seen, part: Asked, wanted: Annotated[Wanted, Depends(get_wanted)]
) -> JobCostsOut:
    """What each job of an account, and of those below it, cost in some days.

    All pages are of the moment of the first one: what is posted meanwhile is on none of them.
    """
    found = job_costs(
        context.engine,
        site,
        account,
        part.period,
        part.moment,
        wanted,
        limit=part.page.limit + 1,
        offset=part.after,
    )
    jobs, following = part.numbered(found.jobs, found.through)
    return JobCostsOut(
        period=PeriodOut.of(part.period),
        quality=QualityOut.of(found.quality),
        total=found.total,
        sums=[SumOut(amount=f"{money:f}", currency=code) for code, money in found.sums.items()],
        jobs=[JobCostOut.of(job) for job in jobs],
        next=following,
    )


@router.get("/{name}/runs", responses=problems(401, 404, 422))
def list_runs(context: Ctx, site: Site, account: Seen, part: Asked) -> RunCostsOut:
    """What each elastic run of an account, and of those below it, cost in some days, the dearest first.

    `jobs` with `run` has the jobs of one. All pages are of the moment of the first one.
    """
    limit = part.page.limit + 1
    found = run_costs(context.engine, site, account, part.period, part.moment, limit=limit, offset=part.after)
    runs, following = part.numbered(found.runs, found.through)
    return RunCostsOut(
        period=PeriodOut.of(part.period),
        quality=QualityOut.of(found.quality),
        total=found.total,
        runs=[RunCostOut.of(run) for run in runs],
        next=following,
    )


@router.get("/{name}/entries", responses=problems(401, 404, 422))
def list_entries(
    context: Ctx,
    site: Site,
    account: Seen,
    part: Asked,
    kind: Kind | None = None,
    node_group: Annotated[Word, Query(examples=["reserved"])] = "",
) -> EntriesOut:
    """What was posted for an account, and for those below it, about some days, each with its reason.

    `jobs` with the same day and node group has the jobs behind an entry of the kind `attributed`. All pages
    are of the moment of the first one.
    """
    wanted, limit = EntriesWanted(kind, node_group), part.page.limit + 1
    found = entries(
        context.engine, site, account, part.period, part.moment, wanted, limit=limit, after=part.after
    )
    told, following = part.next(found.entries, found.through, lambda entry: entry.id)
    return EntriesOut(
        period=PeriodOut.of(part.period), entries=[EntryOut.of(entry) for entry in told], next=following
    )

"""Which days of a month are to be divided anew, and their division, from one state of the store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta

import polars as pl
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.db.bill_models import BillDay
from api.db.bill_store import counted, current_frame, is_awaited
from api.db.day_store import Inputs, KnownDay, NewDay, coverage, known_days, sum_of
from api.db.job_store import BatchInfo, JobsByDay, batches, jobs_digest
from api.db.models import AttributionRun, JobBatch, OwnNodesNote, ReservationPull
from api.db.own_nodes_store import history
from api.db.reservation_store import on_day, reservations_of
from hpctools.budget.attribution import Coverage, is_burst
from hpctools.budget.attribution_table import DayBill, Used, day_bills, divide_day, used_on
from hpctools.budget.month import DAY_SECONDS, Month, day_start
from hpctools.budget.normalise import INVOICED_DAYS
from hpctools.budget.placing import place_table
from hpctools.budget.statement import Knowledge
from hpctools.budget.tree import BudgetSite, Weights
from hpctools.budget.usage_table import Layout
from hpctools.slurm.reservations import Reservation

Head = tuple[int | None, ...]
"""The newest run, jobs, bill, reservations and note of own nodes of a store; another state has another."""

Sites = Mapping[date, BudgetSite]
"""A site as each day of a month is divided by it: with the own nodes that it had then."""

_NOTHING = DayBill({}, {})


@dataclass(frozen=True)
class Division:
    """What a month's store says now.

    Attributes:
        head: of the store that was read.
        days: those that were divided anew; all others are as the store has them.
        knowledge: of the month, these days included.
    """

    head: Head
    days: Mapping[date, NewDay]
    knowledge: Knowledge


def head(session: Session) -> Head:
    """The newest of what a division depends on."""
    ids = (AttributionRun.id, JobBatch.id, BillDay.id, ReservationPull.id, OwnNodesNote.id)
    return tuple(session.scalar(select(func.max(column))) for column in ids)


def divide(session: Session, site: BudgetSite, month: Month, sources: tuple[str, ...], now: int) -> Division:
    """Divide the days of a month whose bill, jobs or rules have changed since they were divided last.

    Args:
        sources: of the bill, as the site has them.
        now: Unix seconds; running jobs are counted until here.

    Raises:
        BudgetError: the bill cannot be divided.
    """
    told = counted(session, sources, site.metric, month)
    bill = place_table(current_frame(session, told, site.metric, month), site)
    bills, sites = day_bills(bill), history(session).sites(site, month.days)
    infos = batches(session, month, furthest(sites))
    kept = kept_for(session, site, month)
    inputs = inputs_of(sites, bills, infos, now, kept)
    known = known_days(session, month, site.metric)
    wanted = sorted({*known, *_eventful(bills, infos, month, now)})
    stale = [day for day in wanted if day not in known or known[day].inputs != inputs[day]]
    new = dict(divided(session, sites, stale, bills, infos, inputs, kept))
    knowledge = _knowledge(session, bill, known, new, now)
    # One that has not come by then does not come any more: the month is from before the export was made.
    late = now >= day_start(month.end) + INVOICED_DAYS * DAY_SECONDS
    if not late and is_awaited(session, told, site.metric, month):
        knowledge = replace(knowledge, estimated=True)
    return Division(head(session), new, knowledge)


def kept_for(session: Session, site: BudgetSite, month: Month) -> tuple[Reservation, ...]:
    """The reservations that matter for a month's idle cost: none by most policies."""
    return reservations_of(session, month) if site.idle == "reservation-owner" else ()


def inputs_of(
    sites: Sites,
    bills: Mapping[date, DayBill],
    infos: list[BatchInfo],
    now: int,
    kept: tuple[Reservation, ...],
) -> dict[date, Inputs]:
    """What each day of a month depends on now.

    Args:
        kept: reservations; a day that one touches has them with its jobs.
    """
    policies = {id(site): policy_digest(site) for site in sites.values()}
    result = {}
    for day, site in sites.items():
        begin = day_start(day)
        counted_to = max(begin, min(begin + DAY_SECONDS, now))
        jobs, held = jobs_digest(infos, day, reach(site)), on_day(kept, day)
        known = _digest((jobs, held)) if held else jobs
        result[day] = Inputs(_digest(bills.get(day, _NOTHING)), known, policies[id(site)], counted_to)
    return result


def furthest(sites: Sites) -> int:
    """The longest `reach` of some days."""
    return max(map(reach, sites.values()))


def reach(site: BudgetSite) -> int:
    """Seconds before a day whose jobs matter for it: they may have started burst nodes that idle now."""
    return DAY_SECONDS if any(is_burst(site, group.name) for group in site.node_groups) else 0


def policy_digest(site: BudgetSite) -> str:
    """Of everything in a site that decides who bears what."""
    shares = [(account.name, account.fair_share) for account in site.departments]
    rules = (site.idle, sorted(site.owners.items()), sorted(site.pools.items()), site.burst)
    # What a site does not use is not in it: a release that adds a rule divides nothing again.
    more = () if site.weights == Weights() else (site.weights,)
    return _digest((site.node_groups, shares, rules, *more))


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _eventful(bills: Mapping[date, DayBill], infos: list[BatchInfo], month: Month, now: int) -> set[date]:
    """Days that have a bill, or jobs until now."""
    begun = [day for day in month.days if day_start(day) < now]
    busy = {
        day
        for day in begun
        if any(info.touches(day_start(day), day_start(day) + DAY_SECONDS) for info in infos)
    }
    return busy | set(bills)


def divided(
    session: Session,
    sites: Sites,
    stale: list[date],
    bills: Mapping[date, DayBill],
    infos: list[BatchInfo],
    inputs: Mapping[date, Inputs],
    kept: tuple[Reservation, ...],
) -> Iterator[tuple[date, NewDay]]:
    """Days divided anew, one after the other.

    Args:
        stale: which, in ascending order.
        infos: `batches` of the month, with what `furthest` says.
        kept: reservations of the month.

    Raises:
        BudgetError: the bill cannot be divided.
    """
    times = [(day_start(day) - reach(sites[day]), day_start(day) + DAY_SECONDS) for day in stale]
    needed = [info for info in infos if any(info.touches(*time) for time in times)]
    jobs, layout = JobsByDay(session, needed), None
    for day in stale:
        bill, counted_to = bills.get(day, _NOTHING), inputs[day].counted_to
        layout = layout if layout is not None and layout.site is sites[day] else Layout(sites[day])
        before = _before(bill, jobs, layout, day)
        costs = divide_day(bill, jobs.of(day), layout, day, counted_to, before, kept)
        yield day, NewDay(inputs[day], costs)


def _before(bill: DayBill, jobs: JobsByDay, layout: Layout, day: date) -> Used:
    """What was used on the day before, where burst nodes' cost may depend on it."""
    if not any(is_burst(layout.site, group) for group, _, _ in bill.cells):
        return {}
    yesterday = day - timedelta(days=1)
    return used_on(jobs.of(yesterday), layout, yesterday, day_start(day))


def _knowledge(
    session: Session,
    bill: pl.DataFrame,
    known: Mapping[date, KnownDay],
    new: Mapping[date, NewDay],
    now: int,
) -> Knowledge:
    kept = [day for day in known.values() if day.day not in new]
    old, fresh = coverage(session, [day.id for day in kept]), sum_of([day.costs.use for day in new.values()])
    last, none = bill["day"].max(), Coverage(0, 0)
    provisional = [day.provisional for day in kept] + [day.costs.provisional for day in new.values()]
    return Knowledge(
        as_of=now,
        billed_through=last if isinstance(last, date) else None,
        estimated=bill.is_empty() or bool(bill["estimated"].any()) or any(provisional),
        coverage={name: old.get(name, none) + fresh.get(name, none) for name in sorted({*old, *fresh})},
        billed_by=_billed_by(bill),
    )


def _billed_by(bill: pl.DataFrame) -> dict[str, date]:
    """The last day on which each source has billed any nodes, as `burn.rates` asks for it."""
    nodes = bill.filter((pl.col("node_group") != "") & (pl.col("node_hours").cast(pl.Float64) > 0))
    return dict(nodes.group_by("source").agg(pl.col("day").max()).sort("source").iter_rows())

"""What was paid for without use: jobs that did not end well, nodes and GPUs that nobody held.

Worked out once for each month and run, as reports are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import polars as pl
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from api.db.engine import reading
from api.services.books import Books, Moment, Quality, open_books, quality
from api.services.charged import Table, less, month_charges, month_key, together, within
from api.services.job_costs import cost_table, of_account, with_jobs
from api.services.kept import Kept, KeptByStore, Same
from hpctools.budget.allowance import Period
from hpctools.budget.attribution_table import amount
from hpctools.budget.money import ZERO
from hpctools.budget.month import DAY_SECONDS, Month
from hpctools.budget.tree import Account, BudgetSite, NodeGroup
from hpctools.budget.usage import NANO

_MONTHS = 60
_HOUR = 3600 * NANO
_STATED = ("day", "account", "state", "currency")

LOST = frozenset({"FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL"})
"""States of jobs whose result is probably lost; Slurm's words."""


@dataclass(frozen=True)
class Ended:
    """Jobs in one state.

    Attributes:
        state: as Slurm says it; `RUNNING` for those that have not ended.
        jobs: how many ended in these days and cost something in the currency; of those that run none. A job
            that ended at midnight ended on the day that it ran on.
        amount: what they cost in these days.
    """

    state: str
    jobs: int
    amount: Decimal


@dataclass(frozen=True)
class GroupUse:
    """How much of a node group was used in some days, by all accounts together.

    Attributes:
        used_hours: node-hours that jobs held.
        idle_hours: node-hours that were paid for while no job held them; None where no bill tells what a
            node-hour costs.
        idle_gpu_hours: the same in GPUs.
        idle: what these hours cost.
    """

    node_group: str
    used_hours: Decimal
    idle_hours: Decimal | None
    idle_gpu_hours: Decimal | None
    idle: Decimal


@dataclass(frozen=True)
class Waste:
    """What was paid for without use.

    Attributes:
        currency: of all amounts.
        quality: how sure it is of the account.
        ended: jobs of the account by state, the dearest first.
        groups: node groups of the whole site that the bill has, the idlest first.
    """

    currency: str
    quality: Quality
    ended: tuple[Ended, ...]
    groups: tuple[GroupUse, ...]


def read_waste(
    engine: Engine,
    site: BudgetSite,
    account: Account,
    period: Period,
    moment: Moment = Moment(),  # noqa: B008 - frozen
) -> Waste:
    """What of an account's spending bore no fruit, and how idle the site's nodes were.

    Raises:
        UnreachableError: the database does not answer.
    """
    with reading(engine) as session:
        books = open_books(session, site.metric, period, moment)
        sure = quality(engine, session, books, site, account)
        months = [_month(engine, session, site, run.month, run.id) for run in books.runs]
    currency = site.currency_of(account)
    key = (Same(site), currency, period, tuple((run.month, run.id) for run in books.runs))
    groups = _kept_groups.of(engine).get(key, lambda: _groups(site, period, months, currency))
    return Waste(currency, sure, _ended(site, account, period, months, currency), groups)


@dataclass(frozen=True)
class _Month:
    """A month of the whole site.

    Attributes:
        states: `day, account, state, currency, ended, units`.
        held: `day, node_group, used`: nano-node-seconds of jobs.
        costs: `day, node_group, kind, currency, units` of compute nodes.
    """

    states: Table
    held: pl.DataFrame
    costs: Table


_kept: KeptByStore[Kept[_Month]] = KeptByStore(lambda: Kept(_MONTHS))
_kept_groups: KeptByStore[Kept[tuple[GroupUse, ...]]] = KeptByStore(lambda: Kept(_MONTHS))


def _month(engine: Engine, session: Session, site: BudgetSite, month: str, run: int) -> _Month:
    def made() -> _Month:
        whole = Month.parse(month)
        books = open_books(session, site.metric, Period(whole.start, whole.end), Moment(through=run))
        by = ("day", "node_group", "kind", "currency")
        return _of_jobs(session, books, less(month_charges(engine, session, site, month, run), by))

    return _kept.of(engine).get(month_key(site, month, run), made)


def _of_jobs(session: Session, books: Books, costs: Table) -> _Month:
    table, places = cost_table(session, books, pl.lit(True))
    cells = table.group_by("day", "node_group", "capacity", "currency").agg(pl.col("used").sum())
    # A job's use stands beside each part of the bill that it bears one of.
    held = cells.group_by("day", "node_group").agg(pl.col("used").max())
    keys = ["cluster", "dbindex"]
    told = with_jobs(session, books, table.select(keys).unique()).select(*keys, "state", "end")
    parts = table.group_by("day", *keys, "account", "currency").agg(pl.col("units").sum())
    # What ends at midnight ran until the last second of the day before, and has no part of the next.
    ended = ((pl.col("end") - 1) // DAY_SECONDS == pl.col("day").cast(pl.Int32)).fill_null(value=False)
    states = (
        parts.join(told, on=keys, how="left")
        .with_columns(pl.col("state").fill_null("UNKNOWN"))
        .group_by(_STATED)
        .agg(ended.sum().cast(pl.Int64).alias("ended"), pl.col("units").sum())
    )
    return _Month((states, places), held, costs)


def _ended(
    site: BudgetSite, account: Account, period: Period, months: list[_Month], currency: str
) -> tuple[Ended, ...]:
    if not months:
        return ()
    mine = within(period) & of_account(site, account) & (pl.col("currency") == currency)
    tables = [(each.states[0].filter(mine), each.states[1]) for each in months]
    sums, places = together(tables, ("state",))
    counts = pl.concat([table.select("state", "ended") for table, _ in tables])
    jobs = dict(counts.group_by("state").agg(pl.col("ended").sum()).iter_rows())
    found = [Ended(state, jobs[state], amount(units, places)) for state, units in sums.iter_rows()]
    return tuple(sorted(found, key=lambda each: (-each.amount, each.state)))


def _groups(site: BudgetSite, period: Period, months: list[_Month], currency: str) -> tuple[GroupUse, ...]:
    """The same for every account: nodes are the whole site's."""
    if not months:
        return ()
    costs = [(each.costs[0].filter(within(period)), each.costs[1]) for each in months]
    sums, places = together(costs, ("day", "node_group", "kind", "currency"))
    held = pl.concat([each.held.filter(within(period)) for each in months])
    used = {(day, group): hours for day, group, hours in held.iter_rows()}
    cells: defaultdict[str, defaultdict[date, _Cell]] = defaultdict(lambda: defaultdict(_Cell))
    for day, group, kind, code, units in sums.iter_rows():
        if code == currency and group in site.groups and site.groups[group].role == "compute":
            cell = cells[group][day]
            cell.held = used.get((day, group), 0)
            cell.idle += units if kind == "idle" else 0
            cell.paid += units if kind == "attributed" else 0
    found = [_group(site.groups[name], list(days.values()), places) for name, days in cells.items()]
    return tuple(sorted(found, key=lambda each: (-each.idle, each.node_group)))


@dataclass
class _Cell:
    """A node group's day: nano-node-seconds that jobs held, units of money for them and for the rest."""

    held: int = 0
    paid: int = 0
    idle: int = 0


def _group(group: NodeGroup, days: list[_Cell], places: int) -> GroupUse:
    hours = _idle_hours(days)
    return GroupUse(
        node_group=group.name,
        used_hours=Decimal(sum(day.held for day in days)) / _HOUR,
        idle_hours=hours,
        idle_gpu_hours=hours * group.gpus if hours is not None else None,
        idle=amount(sum(day.idle for day in days), places),
    )


def _idle_hours(days: list[_Cell]) -> Decimal | None:
    """Node-hours that the idle money paid for, each day at its own price: what jobs bore by hours they held.

    Days on which nobody ran are counted at the price of the others.
    """
    held, paid = sum(day.held for day in days), sum(day.paid for day in days)
    if held <= 0 or paid <= 0:
        return None
    hours = [
        Decimal(day.idle) * day.held / day.paid
        if day.held > 0 and day.paid > 0
        else Decimal(day.idle) * held / paid
        for day in days
    ]
    return sum(hours, ZERO) / _HOUR

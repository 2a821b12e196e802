"""One day of the bill divided among millions of jobs, in columns: the same parts as `attribution.attribute`.

Needs the `api` extra. Money is whole units of 10^-places in 128 bits: what could overflow is refused, and
where only a product could, that cell is divided with Python's integers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import polars as pl

from hpctools.budget.attribution import idle_shares, paid_for, pool_shares
from hpctools.budget.money import EXACT, PART_PLACES, ZERO, apportion, plain, total
from hpctools.budget.month import DAY_SECONDS, day_start
from hpctools.budget.reserved import Free, Idle, free, kept_in
from hpctools.budget.tree import BudgetSite
from hpctools.budget.usage_table import Layout, holds_on, use
from hpctools.errors import BudgetError
from hpctools.slurm.reservations import Reservation

_SUM_LIMIT = 2**120
_PRODUCT_LIMIT = 2**126
_WEIGHT_LIMIT = 2**62

JOB_COSTS = {
    "cluster": pl.String,
    "dbindex": pl.Int64,
    "job_id": pl.Int64,
    "account": pl.String,
    "user": pl.String,
    "node_group": pl.String,
    "capacity": pl.String,
    "currency": pl.String,
    "used": pl.Int64,
    "units": pl.Int128,
}
"""Columns of what jobs cost; `used` is in nano-node-seconds."""

CHARGES = {
    "node_group": pl.String,
    "kind": pl.String,
    "account": pl.String,
    "user": pl.String,
    "capacity": pl.String,
    "currency": pl.String,
    "units": pl.Int128,
}
"""Columns of the day's parts; they sum to the bill."""

USE = {"account": pl.String, "billed": pl.Int64, "used": pl.Int64}
"""Columns of how much of each account's use the bill covers, in nano-node-seconds."""

Cell = tuple[str, str, str]
"""Node group, currency, capacity."""


@dataclass(frozen=True)
class DayBill:
    """A day of the bill.

    Attributes:
        cells: the sum of each (node group, currency, capacity).
        hours: billed node-hours of node groups.
    """

    cells: Mapping[Cell, Decimal]
    hours: Mapping[str, Decimal]


@dataclass(frozen=True)
class DayCosts:
    """A day of the bill, divided.

    Attributes:
        places: amounts are whole units of 10^-places.
        charges, jobs, use: tables as CHARGES, JOB_COSTS and USE say; none of the amounts is zero.
        provisional: a job with a part of the bill was still running.
    """

    places: int
    charges: pl.DataFrame
    jobs: pl.DataFrame
    use: pl.DataFrame
    provisional: bool


def day_bills(bill: pl.DataFrame) -> dict[date, DayBill]:
    """A bill (columns of `bill_table.SCHEMA`) by day."""
    cells: defaultdict[date, defaultdict[Cell, list[Decimal]]] = defaultdict(lambda: defaultdict(list))
    hours: defaultdict[date, defaultdict[str, list[Decimal]]] = defaultdict(lambda: defaultdict(list))
    columns = bill.select("day", "node_group", "currency", "capacity", "amount", "node_hours")
    for day, group, currency, capacity, amount, node_hours in columns.iter_rows():
        cells[day][group, currency, capacity].append(Decimal(amount))
        if node_hours != "0":
            hours[day][group].append(Decimal(node_hours))
    return {
        day: DayBill(
            {cell: total(parts) for cell, parts in sorted(of_day.items())},
            {group: total(parts) for group, parts in sorted(hours[day].items())},
        )
        for day, of_day in cells.items()
    }


Used = Mapping[str, Mapping[str, int]]
"""What the jobs of each account used, by node group, in nano-node-seconds."""


def used_on(jobs: pl.DataFrame, layout: Layout, day: date, as_of: int) -> Used:
    """What jobs used on a day.

    Args:
        jobs: columns of `JobRecord`, each job once; those outside of the day do not count.
        as_of: Unix seconds of the moment that running jobs are counted to.
    """
    ordered = jobs.sort("cluster", "dbindex")
    used = use(ordered, layout, day_start(day), _until(day, as_of))
    return _used(used.join(ordered.select("account").with_row_index("job"), on="job"))


def divide_day(
    bill: DayBill,
    jobs: pl.DataFrame,
    layout: Layout,
    day: date,
    as_of: int,
    before: Used | None = None,
    reservations: Collection[Reservation] = (),
) -> DayCosts:
    """Divide one day of the bill among the jobs of that day, idle time, shared nodes and what has no tag.

    Args:
        jobs: columns of `JobRecord`, each job once; those outside of the day do not count.
        as_of: Unix seconds of the moment that running jobs and today's nodes are counted to.
        before: what was used on the day before; only burst nodes' idle time needs it.
        reservations: what they kept free matters by `reservation-owner` only.

    Raises:
        BudgetError: amounts larger than any bill's.
    """
    begin = day_start(day)
    ordered = jobs.sort("cluster", "dbindex")
    used = use(ordered, layout, begin, _until(day, as_of))
    of_job = ordered.select("cluster", "dbindex", "job_id", "account", "user", "end").with_row_index("job")
    held = used.join(of_job, on="job").sort("node_group", "job")
    places = _places(bill.cells.values())
    together = _used(held)
    kept = _free_on(ordered, layout, day, as_of, reservations)
    unused = {
        group: Idle(_unused(bill, group, layout.site, together, day, as_of), kept.get(group, {}))
        for group in {group for group, _, _ in bill.cells}
    }
    parts, idle = _among_jobs(bill, held, layout.site, unused, places)
    rows = _rest(bill, together, before or {}, idle, unused, _by_account(parts, places), layout.site)
    lines = parts.filter(pl.col("units") != 0)
    return DayCosts(
        places=places,
        charges=_charges(lines, rows, places),
        jobs=lines.select(list(JOB_COSTS)).sort("cluster", "dbindex", "node_group", "currency", "capacity"),
        use=_covered(held, {group for group, _, _ in bill.cells}),
        provisional=bool(parts["end"].is_null().any()),
    )


def _unused(bill: DayBill, group: str, site: BudgetSite, used: Used, day: date, as_of: int) -> int:
    """What was paid for of a group and no job held, in nano-node-seconds."""
    paid = paid_for(group, day, site, bill.hours.get(group), as_of)
    return max(0, paid - sum(used.get(group, {}).values()))


def _free_on(
    jobs: pl.DataFrame, layout: Layout, day: date, as_of: int, reservations: Collection[Reservation]
) -> Free:
    if layout.site.idle != "reservation-owner":
        return {}
    begin, end = day_start(day), _until(day, as_of)
    kept = kept_in(reservations, layout.site, begin, end)
    return free(kept, holds_on(jobs, layout, begin, end, kept), layout.site) if kept else {}


def _until(day: date, as_of: int) -> int:
    begin = day_start(day)
    return max(begin, min(begin + DAY_SECONDS, as_of))


def _used(held: pl.DataFrame) -> Used:
    by_account: defaultdict[str, dict[str, int]] = defaultdict(dict)
    sums = held.group_by("node_group", "account").agg(pl.col("used").sum())
    for group, account, used in sums.iter_rows():
        by_account[group][account] = used
    return by_account


def amount(units: int, places: int) -> Decimal:
    """Units of 10^-places as money."""
    return plain(Decimal(units).scaleb(-places, EXACT))


def units(money: Decimal, places: int) -> int:
    """Money in units of 10^-places, of which it must be a whole number."""
    return int(money.scaleb(places, EXACT))


def _places(amounts: Iterable[Decimal]) -> int:
    """How many decimal places the parts of a day need."""
    known = list(amounts)
    places = max([PART_PLACES, *(-int(each.as_tuple().exponent) for each in known)])
    if sum(abs(units(each, places)) for each in known) >= _SUM_LIMIT:
        raise BudgetError(
            f"a day of the bill has amounts of more than {_SUM_LIMIT} units of 10^-{places}",
            "check where this bill comes from",
        )
    return places


def _among_jobs(
    bill: DayBill, held: pl.DataFrame, site: BudgetSite, unused: Mapping[str, Idle], places: int
) -> tuple[pl.DataFrame, dict[Cell, Decimal]]:
    """What each job bears of each compute cell, and what is left as idle."""
    idle: dict[Cell, Decimal] = {}
    more = {"capacity": pl.String(), "currency": pl.String(), "units": pl.Int128()}
    pieces = [pl.DataFrame(schema=dict(held.schema) | more)]
    of_group = {str(group): part for (group,), part in held.group_by("node_group", maintain_order=True)}
    for cell, money in bill.cells.items():
        group, currency, capacity = cell
        if group not in site.groups or site.groups[group].role != "compute":
            continue
        if group not in of_group:
            idle[cell] = money
            continue
        shares = _parts(money, of_group[group]["used"], unused[group].whole)
        idle[cell] = shares.idle
        scale = pl.lit(10 ** (places - shares.places), dtype=pl.Int128)
        labels = of_group[group].with_columns(
            shares.units, capacity=pl.lit(capacity), currency=pl.lit(currency)
        )
        pieces.append(labels.with_columns(pl.col("units") * scale).select(pieces[0].columns))
    return pl.concat(pieces), idle


@dataclass(frozen=True)
class _Parts:
    """An amount in parts: units of 10^-places for jobs, and what is idle."""

    units: pl.Series
    places: int
    idle: Decimal


def _parts(money: Decimal, used: pl.Series, rest: int) -> _Parts:
    """By largest remainder, ties to the earlier job, idle time last: as `money.apportion` does."""
    places = max(PART_PLACES, -int(money.as_tuple().exponent))
    whole, size = int(used.sum()) + rest, abs(units(money, places))
    if whole >= _WEIGHT_LIMIT or size * whole >= _PRODUCT_LIMIT:
        *parts, idle = apportion(money, [*used, rest])
        values = [units(part, places) for part in parts]
        return _Parts(pl.Series("units", values, dtype=pl.Int128), places, idle)
    weights = pl.concat([used, pl.Series("used", [rest], dtype=pl.Int64)]).cast(pl.Int128).to_frame()
    product, all_of_it = pl.col("used") * pl.lit(size, dtype=pl.Int128), pl.lit(whole, dtype=pl.Int128)
    cut = weights.select(part=product // all_of_it, left=(product % all_of_it).cast(pl.Int64))
    missing = size - int(cut["part"].sum())
    best = cut.with_row_index("place").sort("left", descending=True, maintain_order=True).head(missing)
    more = pl.Series("place", range(cut.height), dtype=pl.UInt32).is_in(best["place"].implode())
    sign = pl.lit(-1 if money < 0 else 1, dtype=pl.Int128)
    signed = cut.select(units=(pl.col("part") + pl.lit(more).cast(pl.Int128)) * sign)["units"]
    return _Parts(signed.head(used.len()), places, amount(int(signed[-1]), places))


def _by_account(parts: pl.DataFrame, places: int) -> dict[str, dict[str, Decimal]]:
    """What jobs cost, by currency and account."""
    sums = parts.group_by("currency", "account").agg(pl.col("units").sum())
    result: defaultdict[str, dict[str, Decimal]] = defaultdict(dict)
    for currency, account, value in sums.iter_rows():
        result[currency][account] = amount(value, places)
    return result


def _rest(
    bill: DayBill,
    used: Used,
    before: Used,
    idle: Mapping[Cell, Decimal],
    unused: Mapping[str, Idle],
    spent: Mapping[str, Mapping[str, Decimal]],
    site: BudgetSite,
) -> list[tuple[Cell, str, str, Decimal]]:
    """What is not a job's: cell, kind, account and amount."""
    rows: list[tuple[Cell, str, str, Decimal]] = []
    for cell, money in bill.cells.items():
        group, currency, _ = cell
        if cell in idle:
            earlier = before.get(group, {})
            shares = idle_shares(site, group, used.get(group, {}), idle[cell], earlier, unused[group])
            rows += [(cell, "idle", account, part) for account, part in shares]
        elif group in site.groups:
            shares = pool_shares(site, group, spent.get(currency, {}), money)
            rows += [(cell, "shared", account, part) for account, part in shares]
        else:
            rows.append((cell, "untagged", "", money))
    return [row for row in rows if row[-1] != ZERO]


def _charges(
    lines: pl.DataFrame, rows: Iterable[tuple[Cell, str, str, Decimal]], places: int
) -> pl.DataFrame:
    keys = [name for name in CHARGES if name != "units"]
    attributed = lines.with_columns(kind=pl.lit("attributed")).group_by(keys).agg(pl.col("units").sum())
    others = [
        (group, kind, account, "", capacity, currency, units(money, places))
        for (group, currency, capacity), kind, account, money in rows
    ]
    rest = pl.DataFrame(others, schema=CHARGES, orient="row")
    return pl.concat([attributed.select(list(CHARGES)), rest]).filter(pl.col("units") != 0).sort(keys)


def _covered(held: pl.DataFrame, billed: set[str]) -> pl.DataFrame:
    known = pl.when(pl.col("node_group").is_in(billed)).then("used").otherwise(0)
    sums = held.group_by("account").agg(billed=known.sum(), used=pl.col("used").sum())
    return sums.select(list(USE)).sort("account")

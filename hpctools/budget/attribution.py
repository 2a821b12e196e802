"""The bill divided among those who caused it, to the last digit.

For every bill, whatever the jobs: attributed + idle + shared + untagged == bill, exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Literal

from hpctools.budget.bill import BillRow
from hpctools.budget.money import EXACT, MOST_PLACES, apportion, total
from hpctools.budget.month import DAY_SECONDS, Month, day_start
from hpctools.budget.reserved import Free, Idle, free, kept_in
from hpctools.budget.tree import BudgetSite
from hpctools.budget.usage import NANO, JobKey, Place, Usage, holds_of, measure
from hpctools.errors import BudgetError
from hpctools.slurm.accounting import JobRecord
from hpctools.slurm.reservations import Reservation

Kind = Literal["attributed", "idle", "shared", "untagged"]
KINDS: tuple[Kind, ...] = ("attributed", "idle", "shared", "untagged")


@dataclass(frozen=True, order=True)
class LineKey:
    """What a line of an attribution is about.

    Attributes:
        node_group: as the bill's tag names it; empty when there was none.
        kind: `attributed` to a job; `idle`: nobody used it; `shared`: login nodes and the like; `untagged`:
            the bill names no node group that the site has (support, tax, what nobody tagged).
        account: who is charged; empty when nobody is.
        user, cluster, dbindex, job_id: of the job; empty and 0 when it is not one job's.
        capacity: how the nodes were paid for, as the bill tells it.
    """

    day: date
    node_group: str
    kind: Kind
    account: str
    user: str
    cluster: str
    dbindex: int
    job_id: int
    currency: str
    capacity: str = ""


@dataclass(frozen=True)
class Line:
    """A part of the bill.

    Attributes:
        amount: in the key's currency.
        provisional: its job was still running.
    """

    key: LineKey
    amount: Decimal
    provisional: bool = False


@dataclass(frozen=True)
class Coverage:
    """How much of an account's use has a bill already, in nano-node-seconds."""

    billed: int
    used: int

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(self.billed + other.billed, self.used + other.used)


@dataclass(frozen=True)
class Attribution:
    """A month's bill, divided.

    Attributes:
        lines: sorted by key, none of them zero.
        coverage: by account that ran jobs.
        estimated: the provider may still change the bill or has not sent it, or a job was still running.
    """

    lines: tuple[Line, ...]
    coverage: Mapping[str, Coverage]
    estimated: bool


def attribute(
    rows: Iterable[BillRow],
    jobs: Iterable[JobRecord],
    site: BudgetSite,
    month: Month,
    as_of: int,
    reservations: Collection[Reservation] = (),
) -> Attribution:
    """Divide a month's bill among jobs, idle time, shared nodes and what carries no tag.

    The order of rows and jobs does not matter. The cost of one node group's day is divided by the shares of
    its nodes that jobs held (see `measure`); what nobody held is idle. The whole is the billed node-hours,
    or the group's always-on nodes where the bill does not tell hours, and never less than what jobs held.

    Args:
        rows: of one month and one metric; each row once.
        jobs: each once; those outside of the month do not count.
        as_of: Unix seconds of the moment that running jobs and today's nodes are counted to.
        reservations: what they kept free matters by `reservation-owner` only.

    Raises:
        BudgetError: rows of another month, or of more than one metric.
    """
    bill, jobs = sorted(rows), list(jobs)
    _check(bill, month)
    usage = measure(jobs, site, month, as_of)
    by_account = _by_account(usage)
    earlier = by_account | (_by_account(measure(jobs, site, month.previous, as_of)) if site.burst else {})
    hours = _node_hours(bill)
    cells = _cells(bill)
    kept = {day: _free_on(day, jobs, site, reservations, as_of) for day in {cell.place[1] for cell in cells}}
    lines: list[Line] = []
    for cell in cells:
        (group, day), used = cell.place, usage.get(cell.place, {})
        before = earlier.get((group, day - timedelta(days=1)), {})
        unused = paid_for(group, day, site, hours.get(cell.place), as_of) - sum(used.values())
        lines += _divide(cell, site, used, Idle(max(0, unused), kept[day].get(group, {})), before)
    lines += _pooled([cell for cell in cells if _is_shared(cell, site)], site, lines)
    return Attribution(
        tuple(sorted((line for line in lines if line.amount), key=lambda line: line.key)),
        _coverage(usage, {(row.node_group, row.day) for row in bill}),
        not bill or any(row.estimated for row in bill) or any(line.provisional for line in lines),
    )


@dataclass(frozen=True)
class _Cell:
    """What one node group cost on one day in one currency."""

    place: Place
    currency: str
    amount: Decimal
    capacity: str

    def line(self, kind: Kind, amount: Decimal, account: str = "", job: JobKey | None = None) -> Line:
        group, day = self.place
        if job is None:
            key = LineKey(day, group, kind, account, "", "", 0, 0, self.currency, self.capacity)
            return Line(key, amount)
        of_job = (job.user, job.cluster, job.dbindex, job.job_id)
        key = LineKey(day, group, kind, account, *of_job, self.currency, self.capacity)
        return Line(key, amount, provisional=job.running)


def _check(bill: Sequence[BillRow], month: Month) -> None:
    metrics = sorted({row.metric for row in bill})
    if len(metrics) > 1:
        raise BudgetError(
            f"the bill mixes the cost measures {', '.join(metrics)}",
            "attribute one measure at a time: they count the same money twice",
        )
    for row in bill:
        if Month.of(row.day) != month:
            raise BudgetError(f"the bill of {month} has a row of {row.day}", "fetch the month's rows only")


def _cells(bill: Iterable[BillRow]) -> list[_Cell]:
    amounts: defaultdict[tuple[Place, str, str], list[Decimal]] = defaultdict(list)
    for row in bill:
        amounts[(row.node_group, row.day), row.currency, row.capacity].append(row.amount)
    return [
        _Cell(place, currency, total(parts), capacity)
        for (place, currency, capacity), parts in amounts.items()
    ]


def _node_hours(bill: Iterable[BillRow]) -> dict[Place, Decimal]:
    hours: defaultdict[Place, Decimal] = defaultdict(Decimal)
    for row in bill:
        hours[row.node_group, row.day] += row.node_hours
    return hours


def paid_for(name: str, day: date, site: BudgetSite, hours: Decimal | None, as_of: int) -> int:
    """Nano-node-seconds of a node group's day that were paid for.

    Args:
        hours: billed node-hours; the always-on nodes count where there are none.
        as_of: Unix seconds that today's nodes are counted to.
    """
    if hours:
        return max(0, int(hours * 3600 * NANO))
    if name not in site.groups:
        return 0
    seconds = min(DAY_SECONDS, max(0, as_of - day_start(day)))
    return site.groups[name].always_on * seconds * NANO


def _free_on(
    day: date, jobs: Iterable[JobRecord], site: BudgetSite, reservations: Collection[Reservation], as_of: int
) -> Free:
    begin = day_start(day)
    end = min(begin + DAY_SECONDS, as_of)
    kept = kept_in(reservations, site, begin, end) if site.idle == "reservation-owner" else {}
    return free(kept, holds_of(jobs, site, (begin, end)), site) if kept else {}


def _is_shared(cell: _Cell, site: BudgetSite) -> bool:
    group = site.groups.get(cell.place[0])
    return group is not None and group.role == "shared"


def _by_account(usage: Usage) -> dict[Place, dict[str, int]]:
    result: dict[Place, dict[str, int]] = {}
    for place, jobs in usage.items():
        sums: defaultdict[str, int] = defaultdict(int)
        for job, weight in jobs.items():
            sums[job.account] += weight
        result[place] = dict(sums)
    return result


def _divide(
    cell: _Cell, site: BudgetSite, used: Mapping[JobKey, int], idle: Idle, before: Mapping[str, int]
) -> list[Line]:
    group = site.groups.get(cell.place[0])
    if group is None:
        return [cell.line("untagged", cell.amount)]
    if group.role == "shared":
        return []
    return _divide_compute(cell, site, sorted(used.items()), idle, before)


def _divide_compute(
    cell: _Cell,
    site: BudgetSite,
    used: Sequence[tuple[JobKey, int]],
    idle: Idle,
    before: Mapping[str, int],
) -> list[Line]:
    by_account: defaultdict[str, int] = defaultdict(int)
    for job, weight in used:
        by_account[job.account] += weight
    weights = [weight for _, weight in used] + [idle.whole]
    *parts, rest = apportion(cell.amount, weights) if any(weights) else [cell.amount]
    lines = [
        cell.line("attributed", part, job.account, job) for (job, _), part in zip(used, parts, strict=True)
    ]
    shares = idle_shares(site, cell.place[0], by_account, rest, before, idle)
    return lines + [cell.line("idle", part, account) for account, part in shares]


def is_burst(site: BudgetSite, group: str) -> bool:
    """Whether a group's nodes are there for the jobs that ran on them only, and its cost is theirs."""
    return site.burst and group in site.groups and site.groups[group].always_on == 0


def idle_shares(
    site: BudgetSite,
    group: str,
    by_account: Mapping[str, int],
    amount: Decimal,
    before: Mapping[str, int],
    idle: Idle,
) -> list[tuple[str, Decimal]]:
    """Who bears the idle cost of a compute group's day; the empty account is nobody.

    Args:
        by_account: what the jobs of each account used of the group on the day.
        before: the same of the day before: burst nodes that idle past midnight were started by those.
        idle: what of the group's time it is the cost of.
    """
    caused = is_burst(site, group)
    if by_account and (caused or site.idle == "proportional"):
        return _split(amount, by_account)
    if caused and before:
        return _split(amount, before)
    if site.idle == "partition-owner" and not caused:
        return _split(amount, _weights_of(site, site.owners.get(group, ())))
    if site.idle == "reservation-owner" and not caused:
        return _split(amount, idle.weights)
    return [("", amount)]


def _pooled(cells: Iterable[_Cell], site: BudgetSite, lines: Iterable[Line]) -> list[Line]:
    """The cost of shared nodes, by rule, after that of compute nodes, which some rules follow."""
    spent: defaultdict[tuple[date, str], defaultdict[str, list[Decimal]]]
    spent = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if line.key.kind == "attributed":
            spent[line.key.day, line.key.currency][line.key.account].append(line.amount)
    result: list[Line] = []
    for cell in cells:
        group, day = cell.place
        by_cost = {account: total(parts) for account, parts in spent[day, cell.currency].items()}
        shares = pool_shares(site, group, by_cost, cell.amount)
        result += [cell.line("shared", part, account) for account, part in shares]
    return result


def pool_shares(
    site: BudgetSite, group: str, by_cost: Mapping[str, Decimal], amount: Decimal
) -> list[tuple[str, Decimal]]:
    """Who bears the cost of a shared group's day; the empty account is nobody.

    Args:
        by_cost: what the jobs of each account cost on the day, in the same currency.
    """
    rule = site.pools.get(group, "unallocated")
    names = [department.name for department in site.departments]
    if rule == "equally":
        return _split(amount, dict.fromkeys(names, 1))
    if rule == "by-fair-share":
        return _split(amount, _weights_of(site, names))
    if rule == "by-use":
        return _split(amount, {name: _whole(cost) for name, cost in by_cost.items() if cost > 0})
    return [("", amount)]


def _weights_of(site: BudgetSite, names: Iterable[str]) -> dict[str, int]:
    return {name: site.by_name[name].fair_share for name in names}


def _whole(cost: Decimal) -> int:
    """A cost in the smallest unit that money can have."""
    return int(cost.scaleb(MOST_PLACES, EXACT))


def _split(amount: Decimal, weights: Mapping[str, int]) -> list[tuple[str, Decimal]]:
    """Parts by account; all of it is nobody's where no weight is above zero."""
    if not any(weights.values()):
        return [("", amount)]
    names = sorted(weights)
    return list(zip(names, apportion(amount, [weights[name] for name in names]), strict=True))


def _coverage(usage: Usage, billed: Collection[Place]) -> dict[str, Coverage]:
    used: defaultdict[str, int] = defaultdict(int)
    known: defaultdict[str, int] = defaultdict(int)
    for place, jobs in usage.items():
        for job, weight in jobs.items():
            used[job.account] += weight
            known[job.account] += weight if place in billed else 0
    return {account: Coverage(known[account], used[account]) for account in sorted(used)}

"""What runs now costs before its bill has come: what jobs were given, times what nodes last cost. Pure.

The bill is about a day late. Until it is there, the days after the last billed one are counted at each node
group's last effective rate; when the bill arrives, what it says takes their place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Protocol

from hpctools.budget.bill import BillRow
from hpctools.budget.money import ZERO, total
from hpctools.budget.month import day_of, day_start
from hpctools.budget.tree import BudgetSite, NodeGroup, Weights

RATE_DAYS = 7
"""Billed days whose cost and hours make a rate."""
_HOUR = 3600
_PLACES = Decimal("0.000001")


class RunningJob(Protocol):
    """A job as slurmdbd has it (`hpctools.slurm.accounting.JobRecord`)."""

    @property
    def account(self) -> str: ...  # noqa: D102
    @property
    def start(self) -> int | None: ...  # noqa: D102
    @property
    def end(self) -> int | None: ...  # noqa: D102
    @property
    def cpus(self) -> int: ...  # noqa: D102
    @property
    def memory_mb(self) -> int: ...  # noqa: D102
    @property
    def gpus(self) -> int: ...  # noqa: D102
    @property
    def shards(self) -> int: ...  # noqa: D102
    @property
    def nodes(self) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class Rate:
    """What an hour of one node costs.

    Attributes:
        per_node_hour: in `currency`, rounded to six decimal places.
        day: the last billed day that it was worked out from.
        billed: the last day on which whoever bills the group has billed any nodes.
        source: who that is.
    """

    node_group: str
    per_node_hour: Decimal
    currency: str
    day: date
    billed: date
    source: str = ""


@dataclass(frozen=True)
class Burn:
    """What an account's jobs cost.

    Attributes:
        per_hour: of those that run now.
        unbilled: since the last billed day, of those that ran and run.
        jobs: how many run.
        days: `unbilled` by UTC day; a day without cost may be missing.
    """

    per_hour: Decimal = ZERO
    unbilled: Decimal = ZERO
    jobs: int = 0
    days: Mapping[date, Decimal] = field(default_factory=dict, compare=False)


def rates(rows: Iterable[BillRow], currency: str) -> dict[str, Rate]:
    """The last effective rate of each node group: all that its nodes cost, divided by their hours.

    Args:
        rows: in any order; a group without hours has no rate.
    """
    given = list(rows)
    cost: defaultdict[tuple[str, date], list[Decimal]] = defaultdict(list)
    hours: defaultdict[tuple[str, date], list[Decimal]] = defaultdict(list)
    for row in given:
        if row.node_group and row.currency == currency:
            cost[row.node_group, row.day].append(row.amount)
            hours[row.node_group, row.day].append(row.node_hours)
    found: dict[str, Rate] = {}
    through = _through(given)
    for name in sorted({group for group, _ in hours}):
        days = sorted(day for group, day in hours if group == name and total(hours[group, day]) > 0)
        last = [(name, day) for day in days[-RATE_DAYS:]]
        if last:
            paid = total(amount for key in last for amount in cost[key])
            ran = total(amount for key in last for amount in hours[key])
            per_hour = _rounded(Fraction(paid) / Fraction(ran))
            found[name] = Rate(name, per_hour, currency, last[-1][1], *through[name])
    return found


def _through(rows: Iterable[BillRow]) -> dict[str, tuple[date, str]]:
    """How far the bill of each node group reaches, and whose: own nodes' is by the hour, a cloud's days late.

    Of several that bill a group it is the one that reaches furthest.
    """
    ran = {(row.node_group, row.source, row.day) for row in rows if row.node_group and row.node_hours > 0}
    of_source: dict[str, date] = {}
    for _, source, day in ran:
        of_source[source] = max(day, of_source.get(source, day))
    of_group: dict[str, tuple[date, str]] = {}
    for group, source, _ in ran:
        furthest = (of_source[source], source)
        of_group[group] = max(furthest, of_group.get(group, furthest))
    return of_group


def burn(
    jobs: Iterable[RunningJob],
    site: BudgetSite,
    known: Mapping[str, Rate],
    since: Mapping[str, int],
    now: int,
    unfold: Callable[[str], Iterable[str]],
) -> dict[str, Burn]:
    """What each account's jobs cost, not rolled up to the accounts above.

    Args:
        jobs: those that run, and those that ended after the first moment of `since`.
        known: by node group; jobs on nodes without a rate cost nothing that is known.
        since: of each node group in `known` the end of the last billed day, Unix seconds.
        unfold: a host list's names.
    """
    hourly: defaultdict[str, Fraction] = defaultdict(Fraction)
    unbilled: defaultdict[str, defaultdict[date, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    running: defaultdict[str, int] = defaultdict(int)
    for job in jobs:
        if job.start is None:
            continue
        parts = list(_parts(job, site, known, tuple(unfold(job.nodes))))
        days = unbilled[job.account]
        for group, part in parts:
            for day, seconds in _by_day(max(job.start, since[group]), min(job.end or now, now)):
                days[day] += part * seconds / _HOUR
        if job.end is None:
            hourly[job.account] += sum((part for _, part in parts), Fraction())
            running[job.account] += 1
    found = {name: {day: _rounded(days[day]) for day in sorted(days)} for name, days in unbilled.items()}
    return {
        name: Burn(_rounded(hourly[name]), total(days.values()), running[name], days)
        for name, days in sorted(found.items())
    }


def _by_day(begin: int, end: int) -> Iterator[tuple[date, int]]:
    """The UTC days of a span, and how many seconds of each it has."""
    while begin < end:
        day = day_of(begin)
        until = min(end, day_start(day + timedelta(days=1)))
        yield day, until - begin
        begin = until


def job_rate(
    job: RunningJob, site: BudgetSite, known: Mapping[str, Rate], nodes: tuple[str, ...]
) -> Fraction:
    """What a job costs an hour on some nodes, among which what it was given is spread evenly."""
    return sum((part for _, part in _parts(job, site, known, nodes)), Fraction())


def _parts(
    job: RunningJob, site: BudgetSite, known: Mapping[str, Rate], nodes: tuple[str, ...]
) -> Iterator[tuple[str, Fraction]]:
    """What the job costs an hour on each of its nodes, with the node's group."""
    for node in nodes:
        group = site.group_of_node.get(node)
        if group is not None and group.name in known:
            share = _share(job, group, len(nodes), site.weights)
            yield group.name, share * Fraction(known[group.name].per_node_hour)


def _share(job: RunningJob, group: NodeGroup, nodes: int, weights: Weights) -> Fraction:
    """The largest of a job's fractions of a node, as the site weighs them."""
    has = (
        (job.cpus, group.cpus, weights.cpu),
        (job.memory_mb, group.memory_mb, weights.memory),
        (job.gpus, group.gpus, weights.gpu),
        (job.shards, group.shards, weights.gpu),
    )
    parts = [Fraction(given * weight, whole * nodes * 100) for given, whole, weight in has if whole]
    return min(Fraction(1), max(parts, default=Fraction(1)))


def _rounded(value: Fraction) -> Decimal:
    return (Decimal(value.numerator) / Decimal(value.denominator)).quantize(_PLACES, ROUND_HALF_EVEN)

"""What runs now costs before its bill has come: what jobs were given, times what nodes last cost. Pure.

The bill is about a day late. Until it is there, the days after the last billed one are counted at each node
group's last effective rate; when the bill arrives, what it says takes their place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Protocol

from hpctools.budget.bill import BillRow
from hpctools.budget.money import ZERO, total
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
    """

    node_group: str
    per_node_hour: Decimal
    currency: str
    day: date


@dataclass(frozen=True)
class Burn:
    """What an account's jobs cost.

    Attributes:
        per_hour: of those that run now.
        unbilled: since the last billed day, of those that ran and run.
        jobs: how many run.
    """

    per_hour: Decimal = ZERO
    unbilled: Decimal = ZERO
    jobs: int = 0


def rates(rows: Iterable[BillRow], currency: str) -> dict[str, Rate]:
    """The last effective rate of each node group: all that its nodes cost, divided by their hours.

    Args:
        rows: of one source, in any order; a group without hours has no rate.
    """
    cost: defaultdict[tuple[str, date], list[Decimal]] = defaultdict(list)
    hours: defaultdict[tuple[str, date], list[Decimal]] = defaultdict(list)
    for row in rows:
        if row.node_group and row.currency == currency:
            cost[row.node_group, row.day].append(row.amount)
            hours[row.node_group, row.day].append(row.node_hours)
    found: dict[str, Rate] = {}
    for name in sorted({group for group, _ in hours}):
        days = sorted(day for group, day in hours if group == name and total(hours[group, day]) > 0)
        last = [(name, day) for day in days[-RATE_DAYS:]]
        if last:
            paid = total(amount for key in last for amount in cost[key])
            ran = total(amount for key in last for amount in hours[key])
            found[name] = Rate(name, _rounded(Fraction(paid) / Fraction(ran)), currency, last[-1][1])
    return found


def burn(
    jobs: Iterable[RunningJob],
    site: BudgetSite,
    known: Mapping[str, Rate],
    since: int,
    now: int,
    unfold: Callable[[str], Iterable[str]],
) -> dict[str, Burn]:
    """What each account's jobs cost, not rolled up to the accounts above.

    Args:
        jobs: those that run, and those that ended after `since`.
        known: by node group; jobs on nodes without a rate cost nothing that is known.
        since: the end of the last billed day, Unix seconds.
        unfold: a host list's names.
    """
    hourly: defaultdict[str, Fraction] = defaultdict(Fraction)
    unbilled: defaultdict[str, Fraction] = defaultdict(Fraction)
    running: defaultdict[str, int] = defaultdict(int)
    for job in jobs:
        if job.start is None:
            continue
        per_hour = job_rate(job, site, known, tuple(unfold(job.nodes)))
        seconds = min(job.end or now, now) - max(job.start, since)
        unbilled[job.account] += per_hour * max(0, seconds) / _HOUR
        if job.end is None:
            hourly[job.account] += per_hour
            running[job.account] += 1
    return {
        name: Burn(_rounded(hourly[name]), _rounded(unbilled[name]), running[name])
        for name in sorted(unbilled)
    }


def job_rate(
    job: RunningJob, site: BudgetSite, known: Mapping[str, Rate], nodes: tuple[str, ...]
) -> Fraction:
    """What a job costs an hour on some nodes, among which what it was given is spread evenly."""
    return sum(_parts(job, site, known, nodes), Fraction())


def _parts(
    job: RunningJob, site: BudgetSite, known: Mapping[str, Rate], nodes: tuple[str, ...]
) -> Iterator[Fraction]:
    for node in nodes:
        group = site.group_of_node.get(node)
        if group is not None and group.name in known:
            yield _share(job, group, len(nodes), site.weights) * Fraction(known[group.name].per_node_hour)


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

"""A month's statement of one account: what it spent, what is left, how it went day by day, and on whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Literal

from hpctools.budget.attribution import Coverage
from hpctools.budget.money import ZERO, difference, percent, to_places, total
from hpctools.budget.month import DAY_SECONDS, Month, day_of, day_start
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite, Level

Status = Literal["none", "estimated", "final"]
PartLevel = Literal["department", "lab", "user", "own", "other"]

PartKey = tuple[str, PartLevel]
"""Name and level of a row of the breakdown."""

FORECAST_DAYS = 7
"""Complete days whose pace the forecast takes."""


@dataclass(frozen=True)
class Knowledge:
    """What was known when the month was last reconciled.

    Attributes:
        as_of: Unix seconds.
        billed_through: the last day that the bill has rows of.
        estimated: the provider may still change the bill, or jobs were running.
        coverage: by account that ran jobs.
        billed_by: the last day on which each source of the bill had nodes; empty where it is not known.
    """

    as_of: int
    billed_through: date | None
    estimated: bool
    coverage: Mapping[str, Coverage]
    billed_by: Mapping[str, date] = field(default_factory=dict)

    def is_over(self, month: Month) -> bool:
        """Whether the month had ended then."""
        return day_of(self.as_of) >= month.end


@dataclass(frozen=True)
class DayPoint:
    """One day of the trend.

    Attributes:
        amount: spent on the day; `cumulative`: in the month until and with it.
        expected: the budget's part at an even pace; None without a budget.
    """

    day: date
    amount: Decimal
    cumulative: Decimal
    expected: Decimal | None


@dataclass(frozen=True)
class Part:
    """One row of the breakdown.

    Attributes:
        level: `own` for what is charged to the account itself and to nobody's jobs in a lab; `other` for an
            account that the site file does not know (any more).
        percent: of what the account spent, one decimal place; None when that is not above zero.
    """

    name: str
    level: PartLevel
    amount: Decimal
    percent: Decimal | None


@dataclass(frozen=True)
class Uncharged:
    """The parts of the whole site's bill that no account is charged with."""

    idle: Decimal
    shared: Decimal
    untagged: Decimal


@dataclass(frozen=True)
class Statement:
    """One account's month.

    All amounts are in `currency` and exact, except `projected`, which is rounded to cents.

    Attributes:
        status: `none` before the first reconciliation; `estimated` until the month is over, its bill final
            and its jobs ended.
        coverage: percent of the account's node time whose bill has arrived; None when it ran nothing.
        spent: `jobs + idle + shared`, and for the whole site also what nobody is charged with: then it is the
            bill.
        idle: its part of idle nodes, where the site's policy charges them.
        left: budget minus spent, negative when overspent.
        projected: `spent` at the month's end if the rest goes like the last week; None for past months and
            before a whole day is billed.
        reached: the alert thresholds (percent) that were reached.
        days: from the first day to the last that is billed.
        parts: departments of a site, labs of a department, users of a lab; they add up to jobs, idle and
            shared.
        other_currencies: what was spent in others; never added up.
        shared: its part of login nodes and the like, where the site's rules charge them.
        corrected: something of it was changed after the month had been final.
    """

    account: Account
    month: Month
    currency: str
    status: Status
    as_of: int | None
    billed_through: date | None
    coverage: Decimal | None
    budget: Decimal | None
    spent: Decimal
    jobs: Decimal
    idle: Decimal
    left: Decimal | None
    percent_used: Decimal | None
    projected: Decimal | None
    reached: tuple[int, ...]
    days: tuple[DayPoint, ...]
    parts: tuple[Part, ...]
    uncharged: Uncharged
    other_currencies: Mapping[str, Decimal]
    shared: Decimal = ZERO
    corrected: bool = False


@dataclass(frozen=True)
class Spent:
    """What an account spent in a month, summed up as its statement tells it; in the account's own currency.

    Attributes:
        whole: all of it, for the site also what nobody is charged with.
        jobs, idle, shared: its parts that the account is charged with.
        days: `whole` by day; a day may be missing.
        parts: by row of the breakdown; one without any cost may be missing.
        uncharged: of the whole site.
        others: what was spent in other currencies.
    """

    whole: Decimal
    jobs: Decimal
    idle: Decimal
    shared: Decimal
    days: Mapping[date, Decimal]
    parts: Mapping[PartKey, Decimal]
    uncharged: Uncharged
    others: Mapping[str, Decimal]


NOTHING = Spent(ZERO, ZERO, ZERO, ZERO, {}, {}, Uncharged(ZERO, ZERO, ZERO), {})


def statement(
    site: BudgetSite,
    account: Account,
    month: Month,
    spent: Spent,
    knowledge: Knowledge | None,
    corrected: bool = False,
) -> Statement:
    """Work out the statement of one account.

    Args:
        account: one of `site.by_name`.
        spent: by the account.
        knowledge: of the month's last reconciliation; None when there was none.
        corrected: whether any of it came after the month had been final.
    """
    budget = account.budget.amount if account.budget else None
    used = percent(spent.whole, budget) if budget is not None else None
    days = _days(month, spent.days, budget, knowledge)
    return Statement(
        account=account,
        month=month,
        currency=site.currency_of(account),
        status=_status(month, knowledge),
        as_of=knowledge.as_of if knowledge else None,
        billed_through=knowledge.billed_through if knowledge else None,
        coverage=_coverage(site, account, knowledge),
        budget=budget,
        spent=spent.whole,
        jobs=spent.jobs,
        idle=spent.idle,
        left=difference(budget, spent.whole) if budget is not None else None,
        percent_used=used,
        projected=_projected(month, spent.whole, days, knowledge),
        reached=_reached(account, used),
        days=days,
        parts=_parts(site, account, spent),
        uncharged=spent.uncharged,
        other_currencies=spent.others,
        shared=spent.shared,
        corrected=corrected,
    )


def _status(month: Month, knowledge: Knowledge | None) -> Status:
    if knowledge is None:
        return "none"
    return "final" if knowledge.is_over(month) and not knowledge.estimated else "estimated"


def _coverage(site: BudgetSite, account: Account, knowledge: Knowledge | None) -> Decimal | None:
    known = knowledge.coverage if knowledge else {}
    mine = known if account.name == SITE_ACCOUNT else site.subtree(account.name) & set(known)
    billed = sum(known[name].billed for name in mine)
    return percent(Decimal(billed), Decimal(sum(known[name].used for name in mine)))


def _reached(account: Account, used: Decimal | None) -> tuple[int, ...]:
    thresholds = account.budget.alert_at if account.budget else ()
    return tuple(limit for limit in thresholds if used is not None and used >= limit)


def _days(
    month: Month, spent: Mapping[date, Decimal], budget: Decimal | None, knowledge: Knowledge | None
) -> tuple[DayPoint, ...]:
    if knowledge is None or knowledge.billed_through is None:
        return ()
    points: list[DayPoint] = []
    cumulative, days = ZERO, month.days
    for number, day in enumerate(days, 1):
        if day > knowledge.billed_through:
            break
        amount = spent.get(day, ZERO)
        cumulative = total((cumulative, amount))
        even = to_places(budget * number / len(days)) if budget is not None else None
        points.append(DayPoint(day, amount, cumulative, even))
    return tuple(points)


def _projected(
    month: Month, spent: Decimal, days: Sequence[DayPoint], knowledge: Knowledge | None
) -> Decimal | None:
    """Where the month ends at the pace of the last complete days, or of these and today if that is more.

    Both, because a bill that is late knows too little of today, and days before today too little of a change.
    """
    if knowledge is None or knowledge.is_over(month):
        return None
    complete = [point for point in days if point.day < day_of(knowledge.as_of)]
    if not complete:
        return None
    last = complete[-FORECAST_DAYS:]
    week, end = total(point.amount for point in last), day_start(month.end)
    begin, midnight = day_start(last[0].day), day_start(last[-1].day) + DAY_SECONDS
    before = last[-1].cumulative + week * (end - midnight) / (midnight - begin)
    if len(days) == len(complete):
        return to_places(max(spent, before))
    today = difference(spent, last[-1].cumulative)
    with_today = spent + (week + today) * (end - knowledge.as_of) / (knowledge.as_of - begin)
    return to_places(max(spent, before, with_today))


def _parts(site: BudgetSite, account: Account, spent: Spent) -> tuple[Part, ...]:
    below: dict[PartKey, Decimal] = {
        (child.name, _part_level(child.level)): ZERO for child in site.children(account.name)
    }
    parts = [
        Part(name, level, amount, percent(amount, spent.whole))
        for (name, level), amount in (below | dict(spent.parts)).items()
    ]
    return tuple(sorted(parts, key=lambda part: (-part.amount, part.name)))


def row_of(site: BudgetSite, account: Account, charged: str) -> PartKey:
    """The row of the breakdown that an account's own costs belong to."""
    if charged == account.name:
        return account.name, "own"
    lineage = site.lineage(charged)
    if account.name not in lineage:
        return charged, "other"
    child = lineage[lineage.index(account.name) - 1]
    return child, _part_level(site.by_name[child].level)


def _part_level(level: Level) -> PartLevel:
    return "other" if level == "site" else level

"""A month's statement of one account: what it spent, what is left, how it went day by day, and on whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal

from hpctools.budget.attribution import Coverage, Kind
from hpctools.budget.money import ZERO, difference, percent, to_places, total
from hpctools.budget.month import DAY_SECONDS, Month, day_of, day_start
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite, Level

Status = Literal["none", "estimated", "final"]
PartLevel = Literal["department", "lab", "user", "own", "other"]

FORECAST_DAYS = 7
"""Complete days whose pace the forecast takes."""


@dataclass(frozen=True)
class Charge:
    """A sum of ledger entries.

    Attributes:
        account: who is charged; empty when nobody is.
        user: whose jobs; empty when it is not for jobs.
    """

    day: date
    kind: Kind
    account: str
    user: str
    currency: str
    amount: Decimal


@dataclass(frozen=True)
class Knowledge:
    """What was known when the month was last reconciled.

    Attributes:
        as_of: Unix seconds.
        billed_through: the last day that the bill has rows of.
        estimated: the provider may still change the bill, or jobs were running.
        coverage: by account that ran jobs.
    """

    as_of: int
    billed_through: date | None
    estimated: bool
    coverage: Mapping[str, Coverage]

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


def statement(
    site: BudgetSite,
    account: Account,
    month: Month,
    charges: Iterable[Charge],
    knowledge: Knowledge | None,
    corrected: bool = False,
) -> Statement:
    """Work out the statement of one account.

    Args:
        account: one of `site.by_name`.
        charges: of the whole site's month, any order.
        knowledge: of the month's last reconciliation; None when there was none.
        corrected: whether any of the charges came after the month had been final.
    """
    everything = list(charges)
    currency = site.currency_of(account)
    subtree = site.subtree(account.name)
    whole = account.name == SITE_ACCOUNT
    mine = [charge for charge in everything if whole or charge.account in subtree]
    own = [charge for charge in mine if charge.currency == currency]
    budget = account.budget.amount if account.budget else None
    spent = _sum(own)
    used = percent(spent, budget) if budget is not None else None
    days = _days(month, own, budget, knowledge)
    return Statement(
        account=account,
        month=month,
        currency=currency,
        status=_status(month, knowledge),
        as_of=knowledge.as_of if knowledge else None,
        billed_through=knowledge.billed_through if knowledge else None,
        coverage=_coverage(site, account, knowledge),
        budget=budget,
        spent=spent,
        jobs=_sum(own, lambda charge: charge.kind == "attributed"),
        idle=_sum(own, lambda charge: charge.kind == "idle" and charge.account != ""),
        left=difference(budget, spent) if budget is not None else None,
        percent_used=used,
        projected=_projected(month, spent, days, knowledge),
        reached=_reached(account, used),
        days=days,
        parts=_parts(site, account, own, spent),
        uncharged=_uncharged([charge for charge in everything if charge.currency == currency]),
        other_currencies=_others(mine, currency),
        shared=_sum(own, lambda charge: charge.kind == "shared" and charge.account != ""),
        corrected=corrected,
    )


def _sum(charges: Iterable[Charge], chosen: Callable[[Charge], bool] = lambda _: True) -> Decimal:
    return total(charge.amount for charge in charges if chosen(charge))


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
    month: Month, charges: Iterable[Charge], budget: Decimal | None, knowledge: Knowledge | None
) -> tuple[DayPoint, ...]:
    if knowledge is None or knowledge.billed_through is None:
        return ()
    by_day: defaultdict[date, list[Decimal]] = defaultdict(list)
    for charge in charges:
        by_day[charge.day].append(charge.amount)
    points: list[DayPoint] = []
    cumulative = ZERO
    for number, day in enumerate(month.days, 1):
        if day > knowledge.billed_through:
            break
        amount = total(by_day.get(day, ()))
        cumulative = total((cumulative, amount))
        even = to_places(budget * number / len(month.days)) if budget is not None else None
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


def _parts(site: BudgetSite, account: Account, charges: Iterable[Charge], spent: Decimal) -> tuple[Part, ...]:
    sums: defaultdict[tuple[str, PartLevel], list[Decimal]] = defaultdict(list)
    for child in site.children(account.name):
        sums[child.name, _part_level(child.level)] = []
    for charge in charges:
        if charge.account:
            sums[_part_of(site, account, charge)].append(charge.amount)
    parts = [
        Part(name, level, total(amounts), percent(total(amounts), spent))
        for (name, level), amounts in sums.items()
    ]
    return tuple(sorted(parts, key=lambda part: (-part.amount, part.name)))


def _part_of(site: BudgetSite, account: Account, charge: Charge) -> tuple[str, PartLevel]:
    """The row that a charge belongs to: the account's child above the charged one, or a lab's user."""
    lineage = site.lineage(charge.account)
    if charge.account == account.name:
        by_user = account.level == "lab" and charge.user
        return (charge.user, "user") if by_user else (account.name, "own")
    if account.name not in lineage:
        return charge.account, "other"
    child = lineage[lineage.index(account.name) - 1]
    return child, _part_level(site.by_name[child].level)


def _part_level(level: Level) -> PartLevel:
    return "other" if level == "site" else level


def _uncharged(charges: Sequence[Charge]) -> Uncharged:
    def of(kind: Kind) -> Decimal:
        return _sum(charges, lambda charge: charge.kind == kind and not charge.account)

    return Uncharged(of("idle"), of("shared"), of("untagged"))


def _others(charges: Iterable[Charge], currency: str) -> dict[str, Decimal]:
    sums: defaultdict[str, list[Decimal]] = defaultdict(list)
    for charge in charges:
        if charge.currency != currency:
            sums[charge.currency].append(charge.amount)
    return {code: total(amounts) for code, amounts in sorted(sums.items())}

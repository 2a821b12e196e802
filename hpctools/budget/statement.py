"""A month's statement of one account: what it spent, what is left, how it went day by day, and on whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Literal

from hpctools.budget.attribution import Coverage
from hpctools.budget.money import ZERO, difference, percent, to_places, total
from hpctools.budget.month import Month, day_of
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite, Level

Status = Literal["none", "estimated", "final"]
PartLevel = Literal["department", "lab", "user", "own", "other"]

PartKey = tuple[str, PartLevel]
"""Name and level of a row of the breakdown."""


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
        expected: the part at an even pace of what may be spent; None without a budget.
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

    All amounts are in `currency` and exact, except `projected`, which is rounded to cents. What it is held
    against (from `budget` to `reached`, and `unbilled`) is None, or nothing, until `held_against` says it.

    Attributes:
        status: `none` before the first reconciliation; `estimated` until the month is over, its bill final
            and its jobs ended.
        coverage: percent of the account's node time whose bill has arrived; None when it ran nothing.
        spent: `jobs + idle + shared`, and for the whole site also what nobody is charged with: then it is the
            bill.
        idle: its part of idle nodes, where the site's policy charges them.
        budget: all that may be spent: with `carried` from before and what was `approved` beyond the budget.
        left: budget minus spent and unbilled, negative when overspent.
        projected: `spent` at the month's end if spending goes on as it went.
        reached: the alert thresholds (percent) that were reached.
        days: from the first day to the last that is billed.
        parts: departments of a site, labs of a department, users of a lab; they add up to jobs, idle and
            shared.
        other_currencies: what was spent in others; never added up.
        shared: its part of login nodes and the like, where the site's rules charge them.
        corrected: something of it was changed after the month had been final.
        unbilled: what ran since the last day of the bill.
    """

    account: Account
    month: Month
    currency: str
    status: Status
    as_of: int | None
    billed_through: date | None
    coverage: Decimal | None
    spent: Decimal
    jobs: Decimal
    idle: Decimal
    days: tuple[DayPoint, ...]
    parts: tuple[Part, ...]
    uncharged: Uncharged
    other_currencies: Mapping[str, Decimal]
    shared: Decimal = ZERO
    corrected: bool = False
    budget: Decimal | None = None
    carried: Decimal | None = None
    approved: Decimal | None = None
    left: Decimal | None = None
    percent_used: Decimal | None = None
    projected: Decimal | None = None
    reached: tuple[int, ...] = ()
    unbilled: Decimal = ZERO


@dataclass(frozen=True)
class Against:
    """What a month's spending is held against. Amounts are in the statement's currency.

    Attributes:
        budget: all that may be spent; None where no budget is for whole months.
        carried, approved: of it, from the month before and beyond the budget.
        alert_at: percentages of it at which somebody is told.
        unbilled: what ran since the last day of the bill.
        projected: what will have been spent at the month's end.
    """

    budget: Decimal | None = None
    carried: Decimal | None = None
    approved: Decimal | None = None
    alert_at: tuple[int, ...] = ()
    unbilled: Decimal = ZERO
    projected: Decimal | None = None


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
    """Work out the statement of one account, held against nothing yet.

    Args:
        account: one of `site.by_name`.
        spent: by the account.
        knowledge: of the month's last reconciliation; None when there was none.
        corrected: whether any of it came after the month had been final.
    """
    return Statement(
        account=account,
        month=month,
        currency=site.currency_of(account),
        status=_status(month, knowledge),
        as_of=knowledge.as_of if knowledge else None,
        billed_through=knowledge.billed_through if knowledge else None,
        coverage=_coverage(site, account, knowledge),
        spent=spent.whole,
        jobs=spent.jobs,
        idle=spent.idle,
        days=_days(month, spent.days, knowledge),
        parts=_parts(site, account, spent),
        uncharged=spent.uncharged,
        other_currencies=spent.others,
        shared=spent.shared,
        corrected=corrected,
    )


def held_against(told: Statement, against: Against) -> Statement:
    """A statement with what may be spent, what is left of that, and where it leads."""
    budget, used = against.budget, total((told.spent, against.unbilled))
    if budget is None:
        return replace(told, unbilled=against.unbilled, projected=against.projected)
    percent_used, length = percent(used, budget), len(told.month.days)
    return replace(
        told,
        budget=budget,
        carried=against.carried,
        approved=against.approved,
        left=difference(budget, used),
        percent_used=percent_used,
        projected=against.projected,
        reached=tuple(each for each in against.alert_at if percent_used is not None and percent_used >= each),
        unbilled=against.unbilled,
        days=tuple(
            replace(point, expected=to_places(budget * number / length))
            for number, point in enumerate(told.days, 1)
        ),
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


def _days(month: Month, spent: Mapping[date, Decimal], knowledge: Knowledge | None) -> tuple[DayPoint, ...]:
    if knowledge is None or knowledge.billed_through is None:
        return ()
    points: list[DayPoint] = []
    cumulative = ZERO
    for day in month.days:
        if day > knowledge.billed_through:
            break
        amount = spent.get(day, ZERO)
        cumulative = total((cumulative, amount))
        points.append(DayPoint(day, amount, cumulative, None))
    return tuple(points)


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

"""What an account may spend, and when it may spend it: periods, budgets, approvals, splits. Pure.

A budget is for one period after the other. All periods are whole UTC days, as the bill's are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Literal, TypeVar

from hpctools.budget.money import difference, total
from hpctools.errors import BudgetError

PeriodKind = Literal["monthly", "quarterly", "yearly", "terms", "once"]
Carry = Literal["none", "surplus", "balance"]
Policy = Literal["off", "warn", "block", "hold", "lower-tier"]

FIRST_OF_JANUARY = (1, 1)


@dataclass(frozen=True)
class Calendar:
    """How time is cut into periods.

    Attributes:
        kind: `monthly`, `quarterly`, `yearly` (an academic year, if it starts in autumn), `terms`, `once`.
        starts: (month, day) at which periods begin: one for `yearly` and `quarterly` (the first quarter's),
            two or more for `terms`, rising; none for the rest.
        first, end: of the only period of `once`; `end` is exclusive.
    """

    kind: PeriodKind = "monthly"
    starts: tuple[tuple[int, int], ...] = ()
    first: date | None = None
    end: date | None = None


@dataclass(frozen=True, order=True)
class Period:
    """Some days in a row; `end` is exclusive."""

    first: date
    end: date

    @property
    def days(self) -> int:
        """How many."""
        return (self.end - self.first).days

    def __contains__(self, day: date) -> bool:
        return self.first <= day < self.end

    def __str__(self) -> str:
        return f"{self.first} to {self.end - timedelta(days=1)}"


@dataclass(frozen=True)
class Enforcement:
    """What happens when a budget is used up.

    Attributes:
        policy: `off` (nothing), `warn` (an alert), `block` (no new jobs), `hold` (pending jobs wait too),
            `lower-tier` (jobs run in `tier`, after everybody else's).
        at: the percentage of what may be spent.
        grace_seconds: for so long after `at` was reached the supervisor may approve more before it begins.
        tier: the QoS of `lower-tier`.
    """

    policy: Policy = "off"
    at: int = 100
    grace_seconds: int = 0
    tier: str = ""


@dataclass(frozen=True)
class Notify:
    """Who is told of alerts.

    Attributes:
        mail: addresses.
        sns: an SNS topic's ARN; empty for none.
        webhook: an https address; empty for none.
    """

    mail: tuple[str, ...] = ()
    sns: str = ""
    webhook: str = ""


@dataclass(frozen=True)
class Spec:
    """A budget as somebody set it.

    Attributes:
        amount: for one period, in `currency`.
        carry: what of the period before is added: nothing, what was left (`surplus`), or also what was
            overspent (`balance`).
        carry_at_most: the most that is carried over; None for no limit.
        over_commit: the accounts below may have more in sum than this one.
        alert_at: percentages of what may be spent at which somebody is told.
        alert_on_forecast: the same of what is expected to be spent by the period's end.
    """

    amount: Decimal
    currency: str
    calendar: Calendar = Calendar()
    carry: Carry = "none"
    carry_at_most: Decimal | None = None
    over_commit: bool = False
    alert_at: tuple[int, ...] = ()
    alert_on_forecast: tuple[int, ...] = ()
    enforcement: Enforcement = Enforcement()
    notify: Notify = Notify()


@dataclass(frozen=True)
class Version:
    """A budget from some day on.

    Attributes:
        effective: the change counts for the whole period that this day lies in, and those after it.
    """

    effective: date
    spec: Spec


@dataclass(frozen=True)
class Approval:
    """More than the budget, granted by somebody.

    What was spent on it is used up, and no debt; the rest of it is gone when it ends.

    Attributes:
        amount: what may be spent beyond it, in all periods that it reaches into together.
        until: the last day (exclusive) on which it counts.
    """

    granted: date
    amount: Decimal
    until: date


def period_of(calendar: Calendar, day: date) -> Period | None:
    """The period that a day lies in; None outside of the only one of `once`."""
    if calendar.kind == "once":
        if calendar.first is None or calendar.end is None:
            return None
        only = Period(calendar.first, calendar.end)
        return only if day in only else None
    begins = _begins(calendar, day.year)
    first = max(begin for begin in begins if begin <= day)
    return Period(first, min(begin for begin in begins if begin > day))


AnyVersion = TypeVar("AnyVersion", bound=Version)


def in_effect(known: Sequence[AnyVersion], day: date) -> AnyVersion | None:
    """The budget of the period that a day lies in: the last that begins before the period is over.

    Args:
        known: of one account, by `effective`; of two of a day the later one counts.
    """
    begun = [version for version in known if version.effective <= day] or list(known[:1])
    period = period_of(begun[-1].spec.calendar, day) if begun else None
    if period is None:
        return begun[-1] if begun and begun[-1].effective <= day else None
    within = [version for version in known if version.effective < period.end]
    return within[-1] if within else None


def check_split(parent: Spec | None, children: Iterable[Spec], name: str = "the account above") -> None:
    """Refuse budgets that are more than there is to give.

    Only budgets for the same periods and in the same currency can be compared: others are refused as well.

    Raises:
        BudgetError: their sum exceeds the budget above, or they cannot be compared with it.
    """
    parts = tuple(children)
    if parent is None or parent.over_commit or not parts:
        return
    for part in parts:
        if (part.currency, part.calendar) != (parent.currency, parent.calendar):
            raise BudgetError(
                f"a part of the budget of {name} is for other periods or in another currency",
                f"use {parent.currency} and the same periods, or allow over_commit in {name}",
            )
    given = total(part.amount for part in parts)
    if given > parent.amount:
        raise BudgetError(
            f"the parts of the budget of {name} add up to {given:f} {parent.currency}, and it has "
            f"{parent.amount:f}",
            f"give {difference(given, parent.amount):f} less, or allow over_commit in {name}",
        )


def _begins(calendar: Calendar, year: int) -> list[date]:
    """The days at which periods begin, from the year before one to the year after it."""
    starts = calendar.starts or (FIRST_OF_JANUARY,)
    if calendar.kind == "monthly":
        starts = tuple((month, 1) for month in range(1, 13))
    elif calendar.kind == "quarterly":
        month, day = starts[0]
        starts = tuple(((month - 1 + 3 * n) % 12 + 1, day) for n in range(4))
    return sorted(date(each, month, day) for each in range(year - 1, year + 2) for month, day in starts)


def counts(approval: Approval, period: Period, today: date | None = None) -> bool:
    """Whether an approval reaches into a period, and has not ended on a day."""
    reaches = approval.granted < period.end and approval.until > period.first
    return reaches and (today is None or approval.granted <= today < approval.until)

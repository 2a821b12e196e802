"""What may be spent: budgets with what is carried over and what was approved, period after period. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal

from hpctools.budget.allowance import Approval, Period, Spec, Version, counts, period_of
from hpctools.budget.money import ZERO, difference, total
from hpctools.errors import BudgetError

MOST_PERIODS = 240
"""How many periods are looked back at most: twenty years of months."""

Ledger = Callable[[Period], Decimal]
"""What was spent in some days, in the currency of the newest budget."""


@dataclass(frozen=True)
class Spendable:
    """What may be spent in one period.

    Attributes:
        amount: the budget itself.
        carried: from the period before; negative when that was overspent.
        approved: beyond the budget.
    """

    period: Period
    currency: str
    amount: Decimal
    carried: Decimal = ZERO
    approved: Decimal = ZERO

    @property
    def total(self) -> Decimal:
        """All that may be spent."""
        return total((self.amount, self.carried, self.approved))


def spendable(
    versions: Sequence[Version],
    period: Period,
    spent: Ledger,
    approvals: Iterable[Approval] = (),
    *,
    since: date | None = None,
    today: date | None = None,
) -> Spendable:
    """What may be spent in a period.

    Args:
        versions: of one account, by `effective`; of two of a day the later one counts.
        spent: what was spent in some days, in the currency of the newest version.
        since: the first day that anything is known of; nothing is carried over from before.
        today: an approval counts on the days from `granted` to `until`, after them what was spent on it; the
            last day of a period that is over, or when None.

    Raises:
        BudgetError: there was no budget then.
    """
    return spendable_together(versions, (period,), spent, approvals, since=since, today=today)


def spendable_together(
    versions: Sequence[Version],
    periods: Sequence[Period],
    spent: Ledger,
    approvals: Iterable[Approval] = (),
    *,
    since: date | None = None,
    today: date | None = None,
) -> Spendable:
    """What may be spent in periods that follow each other; otherwise as `spendable`.

    What the second period got from the first one is what the first one had: it counts once. So does what was
    approved, in however many of them it may be spent.
    """
    whole = Period(periods[0].first, periods[-1].end)
    granted = sorted(approvals, key=lambda each: each.until)
    gone = [_gone_through(versions, each, spent, granted, since) for each in periods]
    seen = min(today or whole.end, whole.end - timedelta(days=1))
    approved = (
        each.amount if counts(each, whole, seen) else total(part.used[place] for part in gone)
        for place, each in enumerate(gone[0].approvals)
        if each.granted <= seen
    )
    return Spendable(
        whole,
        gone[-1].spec.currency,
        total(part.spec.amount for part in gone),
        gone[0].carried,
        total(approved),
    )


@dataclass(frozen=True)
class _Gone:
    """A period as it went.

    Attributes:
        carried: from the period before.
        approvals: what earlier periods left of them, those that end first before others.
        used: what was spent on each in this one.
    """

    spec: Spec
    carried: Decimal
    approvals: Sequence[Approval]
    used: Sequence[Decimal]


def _gone_through(
    versions: Sequence[Version],
    period: Period,
    spent: Ledger,
    approvals: Sequence[Approval],
    since: date | None,
) -> _Gone:
    """A period after those before it, worked out from the first of them.

    Earlier periods that had another calendar or currency carry nothing over and use no approval.
    """
    newest, carried = _in_effect(versions, period), ZERO
    for each in _before(versions, newest, period, _needed(newest, period, approvals, since)):
        spec = _in_effect(versions, each)
        if (spec.currency, spec.calendar) != (newest.currency, newest.calendar):
            carried = ZERO
            continue
        own = total((spec.amount, carried))
        used = _used(approvals, each, own, spent)
        carried = _passed_on(newest, _without_debt(difference(own, spent(each)), used))
        approvals = [
            replace(granted, amount=difference(granted.amount, part))
            for granted, part in zip(approvals, used, strict=True)
        ]
    used = _used(approvals, period, total((newest.amount, carried)), spent)
    return _Gone(newest, carried, approvals, used)


def _needed(newest: Spec, period: Period, approvals: Sequence[Approval], since: date | None) -> date | None:
    """From when on earlier periods matter: without carry-over, those that approvals of this one began in."""
    if newest.carry != "none":
        return since
    first = period.first
    # Those that end last first: each may reach back into a period that earlier ones end in.
    for each in sorted(approvals, key=lambda each: each.until, reverse=True):
        begun = period_of(newest.calendar, first)
        if each.granted < period.end and each.until > (begun.first if begun else first):
            first = min(first, each.granted)
    return first if since is None else max(first, since)


def _used(approvals: Sequence[Approval], period: Period, own: Decimal, spent: Ledger) -> Sequence[Decimal]:
    """What was spent in a period on each approval: what went beyond its own money until the approval ended.

    What was overspent in earlier periods without an approval stays a debt.

    Args:
        approvals: those that end first before others.
        own: the period's budget, and what it got from the one before.
    """
    used: list[Decimal] = []
    for each in approvals:
        beyond = ZERO
        if each.amount and counts(each, period):
            until = Period(period.first, min(each.until, period.end))
            beyond = difference(spent(until), total((max(own, ZERO), *used)))
        used.append(max(ZERO, min(each.amount, beyond)))
    return used


def _without_debt(left: Decimal, used: Sequence[Decimal]) -> Decimal:
    """What is left of a period; what was spent on approvals is no debt, and what was not is nobody's gain."""
    return left if left >= 0 else min(ZERO, total((left, *used)))


def _in_effect(versions: Sequence[Version], period: Period) -> Spec:
    """The last one that counts in a period."""
    known = [version for version in versions if version.effective < period.end]
    if not known:
        raise BudgetError(f"there was no budget from {period}", "ask for a later period")
    return known[-1].spec


def _before(
    versions: Sequence[Version], newest: Spec, period: Period, since: date | None
) -> Sequence[Period]:
    begin = max(filter(None, (versions[0].effective, since)))
    found: list[Period] = []
    earlier = period_of(newest.calendar, period.first - timedelta(days=1))
    while earlier is not None and earlier.end > begin and len(found) < MOST_PERIODS:
        found.append(earlier)
        earlier = period_of(newest.calendar, earlier.first - timedelta(days=1))
    return found[::-1]


def _passed_on(spec: Spec, left: Decimal) -> Decimal:
    if spec.carry == "none":
        return ZERO
    if left < 0:
        return left if spec.carry == "balance" else ZERO
    return left if spec.carry_at_most is None else min(left, spec.carry_at_most)

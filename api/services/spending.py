"""How far an account is in its budget's period: billed, running, expected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from api.db.budget_models import BurnReading
from api.db.engine import reading
from api.db.models import AttributionRun
from api.services.budgets import Stored, approvals, in_effect, versions
from api.services.statements import read_statement
from hpctools.budget.allowance import Period, Spendable, period_of, spendable
from hpctools.budget.burn import Burn
from hpctools.budget.forecast import MOST_DAYS, Forecast, forecast
from hpctools.budget.money import ZERO, difference, percent, total
from hpctools.budget.month import Month, day_of
from hpctools.budget.statement import Statement
from hpctools.budget.thresholds import Position
from hpctools.budget.tree import Account, BudgetSite


@dataclass(frozen=True)
class Outlook:
    """An account's position in a period. Amounts are in the budget's currency.

    Attributes:
        billed: what the bill says; `burn.unbilled`: what ran since, at its last rate.
        as_of: when bill and jobs were read last, Unix seconds; None for never.
        billed_through: the last day that the bill has.
        forecast: None before there are enough days.
    """

    account: Account
    version: Stored
    spendable: Spendable
    billed: Decimal
    burn: Burn
    forecast: Forecast | None
    as_of: int | None
    billed_through: date | None

    @property
    def period(self) -> Period:
        """The period."""
        return self.spendable.period

    @property
    def spent(self) -> Decimal:
        """Billed, and what runs unbilled."""
        return total((self.billed, self.burn.unbilled))

    @property
    def left(self) -> Decimal:
        """What may still be spent; negative when overspent."""
        return difference(self.spendable.total, self.spent)

    @property
    def percent_used(self) -> Decimal | None:
        """To one decimal place; None when nothing may be spent."""
        return percent(self.spent, self.spendable.total)

    @property
    def expected(self) -> Decimal | None:
        """At the period's end; never less than what was spent."""
        return max(self.forecast.expected, self.spent) if self.forecast else None

    @property
    def position(self) -> Position:
        """For alerts."""
        return Position(self.period, self.spendable.total, self.spent, self.expected)

    def is_stale(self, now: int, after: int) -> bool:
        """Whether what is known is older than `after` seconds."""
        return self.as_of is None or now - self.as_of > after


@dataclass(frozen=True)
class Spending:
    """What the ledger has of an account, a month at a time."""

    read: Callable[[Month], Statement]

    def days(self, first: date, end: date) -> Iterator[tuple[date, Decimal]]:
        """Every day that is known, in order; a day without cost is 0."""
        month = Month.of(first)
        while month.start < end:
            for point in self.read(month).days:
                if first <= point.day < end:
                    yield point.day, point.amount
            month = month.next

    def of(self, period: Period) -> Decimal:
        """What was spent in a period."""
        return total(amount for _, amount in self.days(period.first, period.end))


def read_outlook(engine: Engine, site: BudgetSite, account: Account, now: int) -> Outlook | None:
    """Where an account is today; None when it has no budget, or none today.

    Raises:
        UnreachableError: the database does not answer.
    """
    today = day_of(now)
    with reading(engine) as session:
        known = versions(session, account, today)
        version = in_effect(known, today)
        granted = approvals(session, account.name)
        burning = last_burn(session, site, account)
        since = first_known(session)
    period = period_of(version.spec.calendar, today) if version else None
    if version is None or period is None:
        return None
    spending = spending_of(engine, site, account)
    may = spendable(known, period, spending.of, granted, since=since, today=today)
    state = _newest(spending, today)
    return Outlook(
        account=account,
        version=version,
        spendable=may,
        billed=spending.of(period),
        burn=unbilled(burning, state.as_of),
        forecast=_forecast(spending, period, today, state),
        as_of=state.as_of,
        billed_through=state.billed_through,
    )


def read_forecast(
    engine: Engine, site: BudgetSite, account: Account, period: Period, now: int
) -> Forecast | None:
    """Where a period that today lies in ends, with a budget or without; None before there are enough days.

    Raises:
        UnreachableError: the database does not answer.
    """
    spending, today = spending_of(engine, site, account), day_of(now)
    return _forecast(spending, period, today, _newest(spending, today))


def _newest(spending: Spending, today: date) -> Statement:
    """The present month; the one before where it has not been reconciled yet."""
    state = spending.read(Month.of(today))
    return state if state.as_of is not None else spending.read(Month.of(today).previous)


def last_burn(session: Session, site: BudgetSite, account: Account) -> tuple[int, Burn] | None:
    """The last reading of an account and those below it, and when it was taken."""
    at = session.scalar(select(func.max(BurnReading.at)))
    if at is None:
        return None
    mine = site.subtree(account.name)
    rows = session.scalars(select(BurnReading).where(BurnReading.at == at))
    found = [row for row in rows if row.account in mine]
    return at, Burn(
        total(row.per_hour for row in found),
        total(row.unbilled for row in found),
        sum(row.jobs for row in found),
    )


def first_known(session: Session) -> date | None:
    """The first day that anything was ever reconciled of: nothing is carried over from before."""
    month = session.scalar(select(func.min(AttributionRun.month)))
    return Month.parse(month).start if month else None


def spending_of(engine: Engine, site: BudgetSite, account: Account) -> Spending:
    """What the ledger has of an account; each month is read once."""
    read: dict[Month, Statement] = {}

    def statement(month: Month) -> Statement:
        if month not in read:
            read[month] = read_statement(engine, site, account, month)
        return read[month]

    return Spending(statement)


def unbilled(burning: tuple[int, Burn] | None, as_of: int | None) -> Burn:
    """What counts of a reading beside the bill.

    A reading from before the last reconciliation may count what is billed by now: it counts no more."""
    if burning is None:
        return Burn()
    at, burn = burning
    return burn if as_of is None or at >= as_of else Burn(burn.per_hour, ZERO, burn.jobs)


def _forecast(spending: Spending, period: Period, today: date, state: Statement) -> Forecast | None:
    """From the last complete days, those of the periods before too."""
    known = _complete(spending, today, state)
    if not known:
        return None
    last = max(known)
    spent = total(amount for day, amount in known.items() if day in period)
    rest = (period.end - max(last + timedelta(days=1), period.first)).days
    return forecast([known[day] for day in sorted(known)], spent, Decimal(rest))


def _complete(spending: Spending, today: date, state: Statement) -> Mapping[date, Decimal]:
    """The last days whose bill is whole: the bill of the day on which it was read is not."""
    read_on = day_of(state.as_of) if state.as_of is not None else today
    first = read_on - timedelta(days=MOST_DAYS)
    return dict(spending.days(first, read_on))

"""How far an account is in its budget's period: billed, running, expected."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cache
from typing import Protocol

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from api.db.access_models import Reconciliation, ReconciliationEvent
from api.db.budget_models import BurnReading
from api.db.engine import reading
from api.db.models import AttributionRun
from api.services.budgets import Stored, approvals, approvals_of_all, versions, versions_of
from api.services.burning import stored
from api.services.month_days import MonthDays, read_month_days
from api.services.statements import read_statement
from hpctools.budget.allowance import Approval, Period, in_effect, period_of
from hpctools.budget.burn import Burn
from hpctools.budget.forecast import MOST_DAYS, Forecast, forecast
from hpctools.budget.money import ZERO, difference, percent, total
from hpctools.budget.month import Month, day_of
from hpctools.budget.spendable import Spendable, spendable
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


class KnownMonth(Protocol):
    """What of a month matters for an outlook: statements have it, and `MonthDays` for all at once."""

    @property
    def days(self) -> Sequence[SpentDay]:
        """From the first day to the last that is billed; a day without cost is 0."""
        ...

    @property
    def as_of(self) -> int | None:
        """When it was reconciled last, Unix seconds."""
        ...

    @property
    def billed_through(self) -> date | None:
        """The last day that the bill has."""
        ...


class SpentDay(Protocol):
    """What was spent on a day."""

    @property
    def day(self) -> date:
        """The day."""
        ...

    @property
    def amount(self) -> Decimal:
        """In the account's currency."""
        ...


@dataclass(frozen=True)
class Spending:
    """What the ledger has of an account, a month at a time."""

    read: Callable[[Month], KnownMonth]

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
        held = _Held(
            account,
            versions(session, account, today),
            approvals(session, account.name),
            last_burn(session, site, account),
            first_known(session),
        )
    return _outlook(held, spending_of(engine, site, account), today)


def read_outlooks(engine: Engine, site: BudgetSite, now: int) -> list[Outlook]:
    """Where every account is today that has a budget: the same as one by one, in one pass.

    Raises:
        UnreachableError: the database does not answer.
    """
    today = day_of(now)
    with reading(engine) as session:
        known, granted = versions_of(session, site.accounts, today), approvals_of_all(session)
        burning, since = burn_of_all(session, site), first_known(session)
        of_month = months_of_all(engine, session, site)
        found = [
            _outlook(
                _Held(account, known[account.name], granted[account.name], burning.get(account.name), since),
                spending_among(of_month, site, account),
                today,
            )
            for account in site.accounts
            if known[account.name]
        ]
    return [outlook for outlook in found if outlook is not None]


def months_of_all(engine: Engine, session: Session, site: BudgetSite) -> Callable[[Month], MonthDays]:
    """Months of all accounts as a session sees them, each read once."""
    return cache(lambda month: read_month_days(engine, session, site, month))


def spending_among(of_month: Callable[[Month], MonthDays], site: BudgetSite, account: Account) -> Spending:
    """What the ledger has of an account, out of months of all accounts: where many are looked at."""
    return Spending(lambda month: of_month(month).of(account, site))


@dataclass(frozen=True)
class _Held:
    """What the store has of an account beside its spending."""

    account: Account
    versions: list[Stored]
    approvals: list[Approval]
    burning: tuple[int, Burn] | None
    since: date | None


def _outlook(held: _Held, spending: Spending, today: date) -> Outlook | None:
    version = in_effect(held.versions, today)
    period = period_of(version.spec.calendar, today) if version else None
    if version is None or period is None:
        return None
    may = spendable(held.versions, period, spending.of, held.approvals, since=held.since, today=today)
    state = _newest(spending, today)
    return Outlook(
        account=held.account,
        version=version,
        spendable=may,
        billed=spending.of(period),
        burn=unbilled(held.burning, state.as_of, period),
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
    with reading(engine) as session:
        spending = spending_among(months_of_all(engine, session, site), site, account)
        return forecast_of(spending, period, day_of(now))


def forecast_of(spending: Spending, period: Period, today: date) -> Forecast | None:
    """Where a period that today lies in ends, by what an account spent in it and in the four weeks before."""
    return _forecast(spending, period, today, _newest(spending, today))


def _newest(spending: Spending, today: date) -> KnownMonth:
    """The present month; the one before where it has not been reconciled yet."""
    state = spending.read(Month.of(today))
    return state if state.as_of is not None else spending.read(Month.of(today).previous)


def last_burn(session: Session, site: BudgetSite, account: Account) -> tuple[int, Burn] | None:
    """The last reading of an account and those below it, and when it was taken."""
    at = _last_reading(session)
    if at is None:
        return None
    mine = site.subtree(account.name)
    rows = session.scalars(select(BurnReading).where(BurnReading.at == at))
    return at, _together([row for row in rows if row.account in mine], counts=not _is_billed(session, at))


def burn_of_all(session: Session, site: BudgetSite) -> dict[str, tuple[int, Burn]]:
    """The last reading of every account with those below it; accounts that run nothing have one, too."""
    at = _last_reading(session)
    if at is None:
        return {}
    found: defaultdict[str, list[BurnReading]] = defaultdict(list)
    for row in session.scalars(select(BurnReading).where(BurnReading.at == at)):
        for name in site.lineage(row.account):
            found[name].append(row)
    counts = not _is_billed(session, at)
    return {name: (at, _together(found[name], counts=counts)) for name in site.by_name}


def _last_reading(session: Session) -> int | None:
    """When the newest reading was taken: one of a clock that was ahead has a later moment and is older."""
    return session.scalar(select(BurnReading.at).order_by(BurnReading.id.desc()).limit(1))


def _is_billed(session: Session, at: int) -> bool:
    """Whether a bill was posted since a reading, which may have what it counts: it was measured meanwhile."""
    month = Month.of(day_of(at))
    posted = (
        select(ReconciliationEvent.id)
        .join(Reconciliation, Reconciliation.id == ReconciliationEvent.reconciliation_id)
        .where(ReconciliationEvent.state == "done", ReconciliationEvent.at > at)
        .where(Reconciliation.month.in_([str(month.previous), str(month)]))
    )
    return session.scalar(posted.limit(1)) is not None


def _together(rows: Sequence[BurnReading], *, counts: bool) -> Burn:
    """Readings of several accounts as one.

    Args:
        counts: whether what they have beside the bill is not billed by now.
    """
    found = [stored(row) for row in rows]
    if not counts:
        found = [Burn(each.per_hour, ZERO, each.jobs, {}) for each in found]
    days: defaultdict[date, Decimal] = defaultdict(Decimal)
    for day, amount in (each for burn in found for each in burn.days.items()):
        days[day] += amount
    return Burn(
        total(each.per_hour for each in found),
        total(each.unbilled for each in found),
        sum(each.jobs for each in found),
        dict(days),
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


def unbilled(burning: tuple[int, Burn] | None, as_of: int | None, period: Period) -> Burn:
    """What counts of a reading beside the bill, in a period that today lies in.

    A reading from before the last reconciliation may count what is billed by now: it counts no more. What ran
    before the period began is of the one before, whose bill comes within days.
    """
    if burning is None:
        return Burn()
    at, burn = burning
    before = total(amount for day, amount in burn.days.items() if day < period.first)
    counts = difference(burn.unbilled, before)
    if (as_of is not None and at < as_of) or day_of(at) < period.first:
        counts = ZERO
    return Burn(burn.per_hour, counts, burn.jobs)


def _forecast(spending: Spending, period: Period, today: date, state: KnownMonth) -> Forecast | None:
    """From the last complete days, those of the periods before too; a period may be longer than they are."""
    known = _complete(spending, today, state)
    if not known:
        return None
    after = max(max(known) + timedelta(days=1), period.first)
    spent = spending.of(Period(period.first, after))
    return forecast([known[day] for day in sorted(known)], spent, Decimal((period.end - after).days))


def _complete(spending: Spending, today: date, state: KnownMonth) -> Mapping[date, Decimal]:
    """The last days whose bill is whole: the bill of the day on which it was read is not."""
    read_on = day_of(state.as_of) if state.as_of is not None else today
    first = read_on - timedelta(days=MOST_DAYS)
    return dict(spending.days(first, read_on))

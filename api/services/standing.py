"""How an account stands in any days: what it may spend in them, what runs, where they end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from sqlalchemy import Engine

from api.db.engine import reading
from api.services.budgets import Stored, approvals_of_all, versions, versions_of
from api.services.reports import Report
from api.services.spending import (
    Spending,
    first_known,
    last_burn,
    months_of_all,
    read_forecast,
    spending_among,
    unbilled,
)
from hpctools.budget.allowance import (
    Approval,
    Calendar,
    Period,
    PeriodKind,
    in_effect,
    period_of,
)
from hpctools.budget.burn import Burn
from hpctools.budget.forecast import Forecast
from hpctools.budget.money import ZERO, difference, percent, plain, total
from hpctools.budget.month import day_of
from hpctools.budget.spendable import spendable_together
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite


@dataclass(frozen=True)
class Allowed:
    """What may be spent in some days.

    Attributes:
        amount: of the budgets of all periods that the days are made of.
        carried: from before the first of them; negative when that was overspent.
        approved: beyond the budget.
        alert_at: percentages of the total at which somebody is told.
    """

    currency: str
    amount: Decimal
    carried: Decimal = ZERO
    approved: Decimal = ZERO
    alert_at: tuple[int, ...] = ()

    @property
    def total(self) -> Decimal:
        """All that may be spent."""
        return total((self.amount, self.carried, self.approved))


@dataclass(frozen=True)
class Standing:
    """How an account stands.

    Attributes:
        allowed: None without a budget, or where the days are not made of whole periods of it.
        other_period: what kind of periods its budget is for, where these days are none.
        burn: what runs; nothing for days that are over.
        forecast: None for days that are over or before enough is known.
    """

    spent: Decimal
    allowed: Allowed | None
    other_period: PeriodKind | None
    burn: Burn
    forecast: Forecast | None

    @property
    def left(self) -> Decimal | None:
        """What may still be spent, what runs unbilled taken off; negative when overspent."""
        if self.allowed is None:
            return None
        return difference(self.allowed.total, total((self.spent, self.burn.unbilled)))

    @property
    def percent_used(self) -> Decimal | None:
        """Of what may be spent, to one decimal place."""
        if self.allowed is None:
            return None
        return percent(total((self.spent, self.burn.unbilled)), self.allowed.total)


def read_standing(engine: Engine, site: BudgetSite, report: Report, now: int) -> Standing:
    """How an account stands in the days of a report.

    Raises:
        UnreachableError: the database does not answer.
    """
    account, period, today = report.account, report.period, day_of(now)
    allowed = read_allowances(engine, site, (account,), period, now)[account.name]
    other = _other_period(engine, account, period, today) if allowed is None else None
    if today not in period:
        return Standing(report.spent, allowed, other, Burn(), None)
    with reading(engine) as session:
        burning = last_burn(session, site, account)
    burn = unbilled(burning, report.quality.as_of, period)
    ahead = read_forecast(engine, site, account, period, now)
    return Standing(report.spent, allowed, other, burn, ahead)


def _other_period(engine: Engine, account: Account, period: Period, today: date) -> PeriodKind | None:
    """For what kind of periods an account's budget is, whoever set it."""
    with reading(engine) as session:
        version = in_effect(versions(session, account, today), _day_in(period, today))
    return version.spec.calendar.kind if version else None


def read_allowances(
    engine: Engine, site: BudgetSite, accounts: Iterable[Account], period: Period, now: int
) -> dict[str, Allowed | None]:
    """What accounts may spend in some days; of the whole site the sum of its departments.

    Raises:
        UnreachableError: the database does not answer.
    """
    wanted = list(accounts)
    with reading(engine) as session:
        known = versions_of(session, _looked_at(site, wanted), day_of(now))
        budgets = _Budgets(known, approvals_of_all(session), first_known(session))
        of_month = months_of_all(engine, session, site)

        def of(account: Account) -> Allowed | None:
            if account.name == SITE_ACCOUNT:
                return _together(site, [of(department) for department in site.departments])
            spending = spending_among(of_month, site, account)
            return _allowed(budgets, account, spending, period, day_of(now))

        return {account.name: of(account) for account in wanted}


def _looked_at(site: BudgetSite, accounts: Iterable[Account]) -> set[Account]:
    """Accounts, and for the site those whose budgets are its own."""
    return {
        each
        for account in accounts
        for each in (site.departments if account.name == SITE_ACCOUNT else (account,))
    }


@dataclass(frozen=True)
class _Budgets:
    """What the store has of all accounts' budgets."""

    versions: Mapping[str, list[Stored]]
    approvals: Mapping[str, list[Approval]]
    since: date | None


def _allowed(
    budgets: _Budgets, account: Account, spending: Spending, period: Period, today: date
) -> Allowed | None:
    known = budgets.versions[account.name]
    version = in_effect(known, _day_in(period, today))
    pieces = _pieces(version.spec.calendar, period) if version else ()
    if version is None or not pieces or known[0].effective >= pieces[0].end:
        return None
    granted = budgets.approvals.get(account.name, [])
    may = spendable_together(known, pieces, spending.of, granted, since=budgets.since, today=today)
    return Allowed(may.currency, plain(may.amount), may.carried, may.approved, version.spec.alert_at)


def _day_in(period: Period, today: date) -> date:
    """Today, or the day of a period that is nearest to it."""
    return min(max(today, period.first), period.end - timedelta(days=1))


def _together(site: BudgetSite, each: Iterable[Allowed | None]) -> Allowed | None:
    known = [allowed for allowed in each if allowed is not None and allowed.currency == site.currency]
    if not known:
        return None
    return Allowed(
        site.currency,
        total(allowed.amount for allowed in known),
        total(allowed.carried for allowed in known),
        total(allowed.approved for allowed in known),
    )


def _pieces(calendar: Calendar, period: Period) -> Sequence[Period]:
    """The budget's own periods that some days are made of; none when they are cut across."""
    found: list[Period] = []
    day = period.first
    while day < period.end:
        each = period_of(calendar, day)
        if each is None or each.first != day or each.end > period.end:
            return ()
        found.append(each)
        day = each.end
    return found

"""How an account stands in any days: what it may spend in them, what runs, where they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from sqlalchemy import Engine

from api.db.engine import reading
from api.services.budgets import approvals, in_effect, versions
from api.services.reports import Report
from api.services.spending import first_known, last_burn, read_forecast, spending_of, unbilled
from hpctools.budget.allowance import Calendar, Period, PeriodKind, Spendable, period_of, spendable
from hpctools.budget.burn import Burn
from hpctools.budget.forecast import Forecast
from hpctools.budget.money import ZERO, difference, percent, total
from hpctools.budget.month import day_of
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite


@dataclass(frozen=True)
class Allowed:
    """What may be spent in some days.

    Attributes:
        amount: of the budgets of all periods that the days are made of.
        carried: from before the first of them; negative when that was overspent.
        approved: beyond the budget.
    """

    currency: str
    amount: Decimal
    carried: Decimal = ZERO
    approved: Decimal = ZERO

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
    allowed = read_allowed(engine, site, account, period, now)
    other = account.spec.calendar.kind if allowed is None and account.spec else None
    if today not in period:
        return Standing(report.spent, allowed, other, Burn(), None)
    with reading(engine) as session:
        burning = last_burn(session, site, account)
    burn = unbilled(burning, report.quality.as_of)
    ahead = read_forecast(engine, site, account, period, now)
    return Standing(report.spent, allowed, other, burn, ahead)


def read_allowed(
    engine: Engine, site: BudgetSite, account: Account, period: Period, now: int
) -> Allowed | None:
    """What an account may spend in some days; of the whole site the sum of its departments.

    Raises:
        UnreachableError: the database does not answer.
    """
    if account.name == SITE_ACCOUNT:
        return _of_departments(engine, site, period, now)
    today = day_of(now)
    with reading(engine) as session:
        known = versions(session, account, today)
        granted = approvals(session, account.name)
        since = first_known(session)
    version = in_effect(known, min(max(today, period.first), period.end - timedelta(days=1)))
    pieces = _pieces(version.spec.calendar, period) if version else ()
    if not pieces or known[0].effective >= pieces[0].end:
        return None
    spent = spending_of(engine, site, account).of
    day = today if len(pieces) == 1 and today in period else None
    return _sum([spendable(known, each, spent, granted, since=since, today=day) for each in pieces])


def _of_departments(engine: Engine, site: BudgetSite, period: Period, now: int) -> Allowed | None:
    each = [read_allowed(engine, site, department, period, now) for department in site.departments]
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


def _sum(pieces: Sequence[Spendable]) -> Allowed:
    """What the second period got from the first one is what the first one had: it counts once."""
    return Allowed(
        currency=pieces[-1].currency,
        amount=total(each.amount for each in pieces),
        carried=pieces[0].carried,
        approved=total(each.approved for each in pieces),
    )

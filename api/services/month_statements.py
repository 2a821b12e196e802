"""Statements with what they are held against: the same budget, rest and forecast as on the pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date

from sqlalchemy import Engine

from api.db.engine import reading
from api.db.in_loop import takes_long
from api.services.books import month_period
from api.services.kept import Kept, KeptByStore, Same
from api.services.month_days import MonthDays, read_month_days
from api.services.spending import Spending, burn_of_all, forecast_of, spending_among, unbilled
from api.services.standing import Allowed, read_allowances
from api.services.statements import read_statement
from api.services.store_state import State, money_state
from hpctools.budget.burn import Burn
from hpctools.budget.month import Month, day_of
from hpctools.budget.statement import Against, Statement, held_against
from hpctools.budget.tree import Account, BudgetSite

_MONTHS = 36
_ACCOUNTS = 500
_SITES = 4
_LOOKED_AT = 3
"""Months that four weeks before the last reconciliation reach into."""


@dataclass(frozen=True)
class _Running:
    """The present month, as far as it is not billed.

    Attributes:
        burning: the last reading of each account, and when it was taken.
        months: what was spent in it and in those before it that a forecast looks at.
    """

    burning: Mapping[str, tuple[int, Burn]] = field(default_factory=dict)
    months: Mapping[Month, MonthDays] = field(default_factory=dict)

    def spending(self, site: BudgetSite, account: Account) -> Spending:
        """What an account spent in these months."""
        return spending_among(lambda month: self.months.get(month) or MonthDays(month), site, account)


def read_month_statement(
    engine: Engine, site: BudgetSite, account: Account, month: Month, now: int, known_on: int | None = None
) -> Statement:
    """One account's month, and how it stands.

    What may be spent, and what runs, is read once for all accounts for each state of the store; of months
    before the last one for the account alone.

    Args:
        known_on: Unix seconds; what was spent as it was known then, and nothing of what runs or is expected.
            What might be spent is what is known of it now.

    Raises:
        UnreachableError: the database does not answer.
    """
    told = read_statement(engine, site, account, month, known_on)
    state, today = money_state(engine), day_of(now)
    if month.start > today:  # hardly anybody asks, and there are many of them: nothing is kept
        takes_long()
        allowed = read_allowances(engine, site, (account,), month_period(month), now)[account.name]
    elif month < Month.of(today).previous:  # one person looks back, and nobody else waits
        allowed = _allowance(engine, site, (account, month), now, state)
    else:
        allowed = _allowances(engine, site, month, now, state)[account.name]
    present = known_on is None and Month.of(today) == month
    running = _running(engine, site, today, state) if present else _Running()
    return held_against(told, _against(site, told, allowed, running, today))


def _against(
    site: BudgetSite, told: Statement, allowed: Allowed | None, running: _Running, today: date
) -> Against:
    period = month_period(told.month)
    burn = unbilled(running.burning.get(told.account.name), told.as_of, period)
    ahead = forecast_of(running.spending(site, told.account), period, today)
    against = Against(unbilled=burn.unbilled, projected=ahead.expected if ahead else None)
    if allowed is None or allowed.currency != told.currency:
        return against
    return replace(
        against,
        budget=allowed.total,
        carried=allowed.carried,
        approved=allowed.approved,
        alert_at=allowed.alert_at,
    )


def _allowances(
    engine: Engine, site: BudgetSite, month: Month, now: int, state: State
) -> Mapping[str, Allowed | None]:
    """What all accounts may spend in a month; what runs changes nothing of it."""

    def made() -> Mapping[str, Allowed | None]:
        return read_allowances(engine, site, site.by_name.values(), month_period(month), now)

    key = (Same(site), month, day_of(now), state.run, state.budget, state.approval)
    return _kept.of(engine).allowances.get(key, made)


def _allowance(
    engine: Engine, site: BudgetSite, of: tuple[Account, Month], now: int, state: State
) -> Allowed | None:
    """What one account might spend in a month that is over."""
    account, month = of

    def made() -> Allowed | None:
        return read_allowances(engine, site, (account,), month_period(month), now)[account.name]

    key = (Same(site), account.name, month, day_of(now), state.run, state.budget, state.approval)
    return _kept.of(engine).allowance.get(key, made)


def _running(engine: Engine, site: BudgetSite, today: date, state: State) -> _Running:
    """What runs in the present month, and what was spent in the last ones, of all accounts."""

    def made() -> _Running:
        with reading(engine) as session:
            months = [Month.of(today)]
            while len(months) < _LOOKED_AT:
                months.append(months[-1].previous)
            read = {month: read_month_days(engine, session, site, month) for month in months}
            return _Running(burn_of_all(session, site), read)

    key = (Same(site), today, state.run, state.burn, state.event)
    return _kept.of(engine).running.get(key, made)


class _KeptOfStore:
    """What is kept of one store."""

    def __init__(self) -> None:
        self.allowances: Kept[Mapping[str, Allowed | None]] = Kept(_MONTHS)
        self.allowance: Kept[Allowed | None] = Kept(_ACCOUNTS)
        self.running: Kept[_Running] = Kept(_SITES)


_kept = KeptByStore(_KeptOfStore)

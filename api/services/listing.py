"""Accounts beside each other: what each spent, and what it may."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import Engine

from api.services.reports import read_spent
from api.services.standing import Allowed, read_allowances
from hpctools.budget.allowance import Period
from hpctools.budget.money import ZERO
from hpctools.budget.tree import Account, BudgetSite


@dataclass(frozen=True)
class Listed:
    """An account in some days.

    Attributes:
        allowed: None without a budget, or where the days are not made of whole periods of it.
    """

    account: Account
    spent: Decimal
    currency: str
    allowed: Allowed | None


def list_accounts(
    engine: Engine, site: BudgetSite, accounts: Iterable[Account], period: Period, now: int
) -> list[Listed]:
    """What some accounts, each with those below it, spent in some days.

    Raises:
        UnreachableError: the database does not answer.
    """
    wanted, spent = list(accounts), read_spent(engine, site, period)
    allowed = read_allowances(engine, site, wanted, period, now)
    return [
        Listed(
            account,
            spent.get(account.name, ZERO),
            site.currency_of(account),
            allowed[account.name],
        )
        for account in wanted
    ]

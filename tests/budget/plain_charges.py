"""What a statement is, told plainly: out of every charge of the whole site, one account at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from hpctools.budget.attribution import Kind
from hpctools.budget.money import total
from hpctools.budget.month import Month
from hpctools.budget.statement import Knowledge, PartKey, Spent, Statement, Uncharged, row_of, statement
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite


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


def stated(
    site: BudgetSite,
    account: Account,
    month: Month,
    charges: Iterable[Charge],
    knowledge: Knowledge | None,
    corrected: bool = False,
) -> Statement:
    """The statement of an account out of a month's charges in any order."""
    return statement(site, account, month, spent_of(site, account, charges), knowledge, corrected)


def spent_of(site: BudgetSite, account: Account, charges: Iterable[Charge]) -> Spent:
    """What an account spent."""
    everything = list(charges)
    currency = site.currency_of(account)
    subtree = site.subtree(account.name)
    whole = account.name == SITE_ACCOUNT
    mine = [charge for charge in everything if whole or charge.account in subtree]
    own = [charge for charge in mine if charge.currency == currency]
    return Spent(
        whole=_sum(own),
        jobs=_sum(own, lambda charge: charge.kind == "attributed"),
        idle=_sum(own, lambda charge: charge.kind == "idle" and charge.account != ""),
        shared=_sum(own, lambda charge: charge.kind == "shared" and charge.account != ""),
        days=_sums((charge.day, charge.amount) for charge in own),
        parts=_sums((_part_of(site, account, each), each.amount) for each in own if each.account),
        uncharged=_uncharged([charge for charge in everything if charge.currency == currency]),
        others=_sums((each.currency, each.amount) for each in mine if each.currency != currency),
    )


def _part_of(site: BudgetSite, account: Account, charge: Charge) -> PartKey:
    """The row that a charge belongs to: the account's child above the charged one, or a lab's user."""
    if account.level == "lab" and charge.account == account.name and charge.user:
        return charge.user, "user"
    return row_of(site, account, charge.account)


def _uncharged(charges: list[Charge]) -> Uncharged:
    def of(kind: Kind) -> Decimal:
        return _sum(charges, lambda charge: charge.kind == kind and not charge.account)

    return Uncharged(of("idle"), of("shared"), of("untagged"))


def _sums(amounts: Iterable[tuple[Any, Decimal]]) -> dict[Any, Decimal]:
    found: defaultdict[Any, list[Decimal]] = defaultdict(list)
    for key, amount in amounts:
        found[key].append(amount)
    return {key: total(found[key]) for key in sorted(found)}


def _sum(charges: Iterable[Charge], chosen: Callable[[Charge], bool] = lambda _: True) -> Decimal:
    return total(charge.amount for charge in charges if chosen(charge))

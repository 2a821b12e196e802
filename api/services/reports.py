"""What an account spent in some days, in slices: by day, account or person, node group, kind of capacity.

They are sums of what a month cost, which is read once for each run that told it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import polars as pl
from sqlalchemy import Engine

from api.db.engine import reading
from api.services.books import Books, Moment, Quality, open_books, quality
from api.services.charged import Table, month_charges, together, within
from hpctools.budget.allowance import Period
from hpctools.budget.attribution_table import amount
from hpctools.budget.money import ZERO, total
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite


@dataclass(frozen=True)
class Slice:
    """A part of what was spent.

    Attributes:
        kind: `attributed` (of jobs), `idle`, `shared` or `untagged`.
        part: the account directly below, or the account itself; empty when nobody is charged.
        user: whose jobs, in a lab; else empty.
        capacity: how the nodes were paid for; empty where no bill tells it.
    """

    kind: str
    part: str
    user: str
    node_group: str
    capacity: str
    amount: Decimal


@dataclass(frozen=True)
class Report:
    """What an account spent in some days. Amounts are exact, in `currency`.

    Attributes:
        billed_through: the last day that the bill has.
        slices: they sum to `spent` and, for an account, what nobody is charged with is not among them.
        days: what was spent on each day, from the first of the period to the last that is billed.
        others: spent in other currencies; never added up.
        uncharged: of the whole site's bill, by kind: what no account is charged with.
    """

    account: Account
    period: Period
    currency: str
    quality: Quality
    billed_through: date | None
    slices: tuple[Slice, ...]
    days: tuple[tuple[date, Decimal], ...]
    others: Mapping[str, Decimal]
    uncharged: Mapping[str, Decimal]

    @property
    def spent(self) -> Decimal:
        """All of it; for the whole site the bill."""
        return total(each.amount for each in self.slices)

    def of_kind(self, kind: str) -> Decimal:
        """The part of one kind."""
        return total(each.amount for each in self.slices if each.kind == kind)

    def by(self, key: Callable[[Slice], str | None]) -> dict[str, Decimal]:
        """Sums by something, the largest first; slices for which it is None do not count."""
        sums: defaultdict[str, list[Decimal]] = defaultdict(list)
        for each in self.slices:
            name = key(each)
            if name is not None:
                sums[name].append(each.amount)
        found = {name: total(amounts) for name, amounts in sums.items()}
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def read_report(engine: Engine, site: BudgetSite, account: Account, period: Period) -> Report:
    """What an account spent in some days, as it is known now.

    Raises:
        UnreachableError: the database does not answer.
    """
    with reading(engine) as session:
        books = open_books(session, site.metric, period, Moment())
        sure = quality(engine, session, books, site, account)
        tables = [month_charges(engine, session, site, run.month, run.id) for run in books.runs]
    billed = [run.billed_through for run in books.runs if run.billed_through is not None]
    return _report(site, account, books, sure, tables, max(billed, default=None))


def _report(
    site: BudgetSite,
    account: Account,
    books: Books,
    sure: Quality,
    tables: list[Table],
    billed: date | None,
) -> Report:
    currency = site.currency_of(account)
    days = within(books.period)
    mine = [(_of_account(site, account, table.filter(days)), places) for table, places in tables]
    if not mine:
        return Report(account, books.period, currency, sure, billed, (), (), {}, {})
    sums, places = together(mine, ("kind", "account", "user", "node_group", "capacity", "currency"))
    whole = account.name == SITE_ACCOUNT
    own, others = _by_currency(sums, places, currency, whole)
    charged = [(table if whole else table.filter(pl.col("account") != ""), own) for table, own in mine]
    return Report(
        account=account,
        period=books.period,
        currency=currency,
        quality=sure,
        billed_through=billed,
        slices=tuple(each for each in own if whole or each.part),
        days=_days(charged, currency, books.period, billed),
        others=others,
        uncharged=_uncharged(own),
    )


def _of_account(site: BudgetSite, account: Account, table: pl.DataFrame) -> pl.DataFrame:
    """The rows of an account and of what nobody is charged with, by the account directly below it."""
    child = {name: child.name for child in site.children(account.name) for name in site.subtree(child.name)}
    wanted = [*site.subtree(account.name), ""]
    mine = table if account.name == SITE_ACCOUNT else table.filter(pl.col("account").is_in(wanted))
    user = pl.col("user") if account.level == "lab" else pl.lit("")
    return mine.with_columns(pl.col("account").replace(child), user.alias("user"))


def _by_currency(
    sums: pl.DataFrame, places: int, currency: str, whole: bool
) -> tuple[list[Slice], dict[str, Decimal]]:
    own: list[Slice] = []
    others: defaultdict[str, list[Decimal]] = defaultdict(list)
    for kind, part, user, group, capacity, code, units in sums.iter_rows():
        money = amount(units, places)
        if code == currency:
            own.append(Slice(kind, part, user, group, capacity, money))
        elif part or whole:
            others[code].append(money)
    return own, {code: total(amounts) for code, amounts in sorted(others.items())}


def _uncharged(slices: Iterable[Slice]) -> dict[str, Decimal]:
    sums: defaultdict[str, list[Decimal]] = defaultdict(list)
    for each in slices:
        if not each.part:
            sums[each.kind].append(each.amount)
    return {kind: total(amounts) for kind, amounts in sums.items()}


def _days(
    tables: list[Table], currency: str, period: Period, billed: date | None
) -> tuple[tuple[date, Decimal], ...]:
    if billed is None:
        return ()
    sums, places = together(tables, ("day", "currency"))
    found = {day: amount(units, places) for day, code, units in sums.iter_rows() if code == currency}
    end = min(max([billed, *found]).toordinal() + 1, period.end.toordinal())
    days = (date.fromordinal(number) for number in range(period.first.toordinal(), end))
    return tuple((day, found.get(day, ZERO)) for day in days)


def read_spent(engine: Engine, site: BudgetSite, period: Period) -> dict[str, Decimal]:
    """What each account and those below it spent in some days; of the whole site the bill.

    Raises:
        UnreachableError: the database does not answer.
    """
    with reading(engine) as session:
        books = open_books(session, site.metric, period, Moment())
        months = [month_charges(engine, session, site, run.month, run.id) for run in books.runs]
    if not months:
        return {}
    sums, places = together(
        [(table.filter(within(period)), own) for table, own in months], ("account", "currency")
    )
    found: defaultdict[str, list[Decimal]] = defaultdict(list)
    for name, code, units in sums.iter_rows():
        for above in site.lineage(name) or (SITE_ACCOUNT,):
            if code == site.currency_of(site.by_name[above]):
                found[above].append(amount(units, places))
    return {name: total(amounts) for name, amounts in found.items()}

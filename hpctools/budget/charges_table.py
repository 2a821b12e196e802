"""A site's month in columns, made small for the statement of one account. Needs the `api` extra."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import date
from itertools import chain
from typing import cast

import polars as pl

from hpctools.budget.attribution import Kind
from hpctools.budget.attribution_table import amount
from hpctools.budget.statement import Charge
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite

_BY = ("day", "kind", "account", "user", "currency")

Key = tuple[date, str, str, str, str]
Row = tuple[Key, int]


class SplitCharges:
    """A site's month, put in order by account once: a statement looks only at what is the account's own.

    Args:
        table: `day, kind, account, user, currency, units` of the whole site's month.
        places: of `units`.
    """

    def __init__(self, table: pl.DataFrame, places: int) -> None:
        self._places = places
        self._of_users = _Split(table)
        self._of_all = _Split(table.with_columns(pl.lit("").alias("user")))

    def of(self, site: BudgetSite, account: Account) -> list[Charge]:
        """What the statement of an account needs to know: the same statement as from every charge.

        Charges of accounts below are put together as those of the child above them, users only matter in a
        lab, and of what nobody is charged with there is one for each day.
        """
        child = {name: top.name for top in site.children(account.name) for name in site.subtree(top.name)}
        sums: defaultdict[Key, int] = defaultdict(int)
        for (day, kind, name, user, currency), units in self._rows(site, account, child):
            sums[day, kind, child.get(name, name), user, currency] += units
        return [
            Charge(day, cast(Kind, kind), name, user, currency, amount(units, self._places))
            for (day, kind, name, user, currency), units in sorted(sums.items())
        ]

    def _rows(self, site: BudgetSite, account: Account, child: dict[str, str]) -> Iterable[Row]:
        if account.name == SITE_ACCOUNT:
            return _rows(_summed(self._of_all.table.with_columns(pl.col("account").replace(child))))
        split = self._of_users if account.level == "lab" else self._of_all
        return chain.from_iterable(split.rows(name) for name in (*site.subtree(account.name), ""))


class _Split:
    """Sums in the order of their accounts, and where in the table each account's are.

    A table of columns: as rows of Python two years of a large site would take a gigabyte.
    """

    def __init__(self, table: pl.DataFrame) -> None:
        self.table = _summed(table).sort("account")
        places = self.table.with_row_index("at").group_by("account").agg(pl.col("at").min(), pl.len())
        self._places = {name: (at, count) for name, at, count in places.iter_rows()}

    def rows(self, account: str) -> Iterator[Row]:
        return _rows(self.table.slice(*self._places.get(account, (0, 0))))


def _summed(table: pl.DataFrame) -> pl.DataFrame:
    return table.group_by(_BY).agg(pl.col("units").sum())


def _rows(table: pl.DataFrame) -> Iterator[Row]:
    return ((cast(Key, row[:-1]), row[-1]) for row in table.iter_rows())

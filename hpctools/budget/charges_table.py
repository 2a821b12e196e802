"""What every account of a site spent in a month, summed up once for all of them. Needs the `api` extra.

A statement may be of any account: each takes its few rows out of sums in the order of accounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, cast

import polars as pl

from hpctools.budget.attribution_table import amount
from hpctools.budget.money import ZERO
from hpctools.budget.statement import PartKey, PartLevel, Spent, Uncharged, row_of
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite

_UNITS = pl.col("units").sum()
_LINEAGE = {"account": pl.String, "above": pl.String, "name": pl.String, "level": pl.String}


class MonthSums:
    """Sums of a site's month for the statement of each account, as its tree of accounts is.

    Args:
        site: `BudgetSite.shape` of it counts; budgets do not.
        table: `day, kind, account, user, currency, units` of the whole site's month.
        places: of `units`.
    """

    def __init__(self, site: BudgetSite, table: pl.DataFrame, places: int) -> None:
        self._places = places
        by_user = _sums(table, "account", "currency", "kind", "user")
        by_kind = _sums(by_user, "account", "currency", "kind")
        lineage = _lineage(site, by_kind["account"].unique())
        days = _sums(table, "account", "currency", "day").join(lineage, on="account")
        kinds = by_kind.join(lineage, on="account")
        self._days = _Sorted(_sums(days, "above", "currency", "day"))
        self._kinds = _Sorted(_sums(kinds, "above", "currency", "kind", pl.col("account") != ""))
        self._parts = _Sorted(_parts(site, by_user.join(lineage, on="account")))
        self._uncharged = self._of_nobody(by_kind.filter(pl.col("account") == ""))

    def of(self, site: BudgetSite, account: Account) -> Spent:
        """What an account spent."""
        currency, kinds = site.currency_of(account), self._kinds.of(account.name)
        own = [(kind, charged, units) for code, kind, charged, units in kinds if code == currency]
        others = sorted({code for code, *_ in kinds} - {currency})
        return Spent(
            whole=self._sum(units for *_, units in own),
            jobs=self._sum(units for kind, _, units in own if kind == "attributed"),
            idle=self._sum(units for kind, charged, units in own if kind == "idle" and charged),
            shared=self._sum(units for kind, charged, units in own if kind == "shared" and charged),
            days=self._own_days(account, currency),
            parts=self._own_parts(account, currency),
            uncharged=self._uncharged.get(currency, Uncharged(ZERO, ZERO, ZERO)),
            others={each: self._sum(row[-1] for row in kinds if row[0] == each) for each in others},
        )

    def _own_days(self, account: Account, currency: str) -> dict[date, Decimal]:
        rows = self._days.of(account.name)
        return {day: amount(units, self._places) for code, day, units in rows if code == currency}

    def _own_parts(self, account: Account, currency: str) -> dict[PartKey, Decimal]:
        rows = self._parts.of(account.name)
        return {
            (name, cast(PartLevel, level)): amount(units, self._places)
            for code, name, level, units in rows
            if code == currency
        }

    def _of_nobody(self, kinds: pl.DataFrame) -> dict[str, Uncharged]:
        found = {(code, kind): units for _, code, kind, units in kinds.iter_rows()}

        def of(code: str, kind: str) -> Decimal:
            return amount(found.get((code, kind), 0), self._places)

        codes = {code for code, _ in found}
        return {code: Uncharged(of(code, "idle"), of(code, "shared"), of(code, "untagged")) for code in codes}

    def _sum(self, units: Iterable[int]) -> Decimal:
        return amount(sum(units), self._places)


class _Sorted:
    """Rows in the order of the account that they are for, and where in the table each account's are.

    A table of columns: as rows of Python two years of a large site would take hundreds of megabytes.
    """

    def __init__(self, sums: pl.DataFrame) -> None:
        ordered = sums.sort("above")
        places = ordered.with_row_index("at").group_by("above").agg(pl.col("at").min(), pl.len())
        self._places = {name: (at, count) for name, at, count in places.iter_rows()}
        self._rows = ordered.drop("above")

    def of(self, account: str) -> Sequence[tuple[Any, ...]]:
        """The rows of an account."""
        place = self._places.get(account)
        return self._rows.slice(*place).rows() if place else ()


def _sums(table: pl.DataFrame, *by: str | pl.Expr) -> pl.DataFrame:
    return table.group_by(*by).agg(_UNITS)


def _lineage(site: BudgetSite, charged: Iterable[str]) -> pl.DataFrame:
    """Each charged account with all whose statement it is in, and its row there; all is in the site's."""
    rows = [
        (name, above, *(row_of(site, site.by_name[above], name) if name else (None, None)))
        for name in charged
        for above in (*(each for each in site.lineage(name) if each != SITE_ACCOUNT), SITE_ACCOUNT)
    ]
    return pl.DataFrame(rows, schema=_LINEAGE, orient="row")


def _parts(site: BudgetSite, rows: pl.DataFrame) -> pl.DataFrame:
    labs = [each.name for each in site.accounts if each.level == "lab"]
    of_user = (pl.col("account") == pl.col("above")) & (pl.col("user") != "") & pl.col("above").is_in(labs)
    told = rows.filter(pl.col("account") != "").with_columns(
        name=pl.when(of_user).then(pl.col("user")).otherwise(pl.col("name")),
        level=pl.when(of_user).then(pl.lit("user")).otherwise(pl.col("level")),
    )
    return _sums(told, "above", "currency", "name", "level")

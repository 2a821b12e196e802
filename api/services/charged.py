"""What a month cost, as a run told it: read and put together once, by all that figures tell it apart by.

What a run has told does not change. Statements, reports and the use of nodes are sums of the same columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from api.db.ledger import charges
from api.services.kept import Kept, KeptByStore
from hpctools.budget.allowance import Period
from hpctools.budget.month import Month
from hpctools.budget.tree import BudgetSite

_BY = ("day", "node_group", "kind", "account", "user", "capacity", "currency")
_MONTHS = 60

Table = tuple[pl.DataFrame, int]
"""Columns, and the places of `units`."""

_kept: KeptByStore[Kept[Table]] = KeptByStore(lambda: Kept(_MONTHS))


def month_key(site: BudgetSite, month: str, run: int) -> tuple[str, str, int]:
    """What a month as a run told it is kept under."""
    return (site.metric, month, run)


def month_charges(engine: Engine, session: Session, site: BudgetSite, month: str, run: int) -> Table:
    """A month of the whole site by day, node group, kind, account, user, capacity and currency."""

    def made() -> Table:
        return charges(session, Month.parse(month), site.metric, run, _BY)

    return _kept.of(engine).get(month_key(site, month, run), made)


def within(period: Period) -> pl.Expr:
    """The rows of some days, of any table with a column `day`."""
    return (pl.col("day") >= period.first) & (pl.col("day") < period.end)


def less(table: Table, by: Sequence[str]) -> Table:
    """The same, told apart by less."""
    columns, places = table
    return columns.group_by(by).agg(pl.col("units").sum()).sort(by), places


def together(tables: Iterable[Table], by: Iterable[str]) -> Table:
    """Sums of `units` over tables of different places."""
    known = list(tables)
    places = max((own for _, own in known), default=0)
    scaled = [
        table.with_columns(pl.col("units") * pl.lit(10 ** (places - own), dtype=pl.Int128))
        for table, own in known
    ]
    columns = list(by)
    sums = pl.concat(scaled).group_by(columns).agg(pl.col("units").sum())
    return sums.filter(pl.col("units") != 0).sort(columns), places

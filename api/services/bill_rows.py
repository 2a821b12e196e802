"""The bill's rows behind an account's figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import polars as pl
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from api.db.bill_store import counted, current_frame
from api.db.engine import reading
from api.services.charged import within
from hpctools.budget.allowance import Period
from hpctools.budget.money import total
from hpctools.budget.month import Month, months_of
from hpctools.budget.placing import place_table
from hpctools.budget.tree import BudgetSite

_BY = ["day", "service", "usage", "charge", "capacity", "currency"]


@dataclass(frozen=True)
class BillLine:
    """What a provider charged on a day for one kind of use; its rows in the bill may be several.

    Attributes:
        usage: the provider's usage type.
        charge: what kind of money it is; see `hpctools.budget.bill`.
        node_hours: 0 when it is not for running nodes.
        rows: how many they are in the bill.
    """

    day: date
    service: str
    usage: str
    charge: str
    capacity: str
    currency: str
    amount: Decimal
    node_hours: Decimal
    rows: int


@dataclass(frozen=True)
class BillLines:
    """A page of lines, in the order of the days.

    Attributes:
        total: how many there are; `amounts`: what they cost, by currency.
    """

    total: int
    amounts: dict[str, Decimal]
    lines: tuple[BillLine, ...]


def bill_lines(
    engine: Engine,
    site: BudgetSite,
    sources: Sequence[str],
    period: Period,
    node_group: str,
    *,
    limit: int = 100,
    offset: int = 0,
) -> BillLines:
    """What the bill has of a node group in some days, as it was read last.

    Args:
        sources: of the bill, as the site has them; what others told is in no figure.
        node_group: empty for what the bill names no nodes for.

    Raises:
        UnreachableError: the database does not answer.
    """
    with reading(engine) as session:
        tables = [_month(session, site, sources, month) for month in months_of(period.first, period.end)]
    rows = pl.concat(tables).filter(within(period) & _of_group(site, node_group))
    lines = rows.group_by(_BY).agg("amount", "node_hours", pl.len().alias("rows")).sort(_BY)
    money = rows.group_by("currency").agg("amount").sort("currency")
    return BillLines(
        total=lines.height,
        amounts={code: _sum(amounts) for code, amounts in money.iter_rows()},
        lines=tuple(
            BillLine(*(*by, _sum(amounts), _sum(hours), count))
            for *by, amounts, hours, count in lines.slice(offset, limit).iter_rows()
        ),
    )


def _month(session: Session, site: BudgetSite, sources: Sequence[str], month: Month) -> pl.DataFrame:
    told = counted(session, sources, site.metric, month)
    return place_table(current_frame(session, told, site.metric, month), site)


def _of_group(site: BudgetSite, node_group: str) -> pl.Expr:
    """What the ledger has under no node group is what the site file knows none for."""
    return pl.col("node_group") == node_group


def _sum(texts: list[str]) -> Decimal:
    return total(Decimal(text) for text in texts)

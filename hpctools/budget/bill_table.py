"""Bill rows as columns (polars), for bills of hundreds of thousands of rows. Needs the `api` extra.

Amounts and hours are text in the one spelling of `money.plain`: exact, and equal when amounts are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import fields
from decimal import Decimal
from io import BytesIO
from typing import Any

import polars as pl
from polars.exceptions import PanicException, PolarsError

from hpctools.budget.bill import BillRow
from hpctools.budget.money import plain, total
from hpctools.errors import BudgetError

SCHEMA: dict[str, pl.DataType] = {
    "source": pl.String(),
    "day": pl.Date(),
    "node_group": pl.String(),
    "usage": pl.String(),
    "metric": pl.String(),
    "currency": pl.String(),
    "amount": pl.String(),
    "node_hours": pl.String(),
    "estimated": pl.Boolean(),
    "service": pl.String(),
    "charge": pl.String(),
    "resource": pl.String(),
    "capacity": pl.String(),
    "billing_account": pl.String(),
    "invoice": pl.String(),
    "cluster": pl.String(),
}
"""The columns, in the order of BillRow's fields."""

_MONEY = ("amount", "node_hours")
_AMOUNT, _HOURS = (list(SCHEMA).index(name) for name in _MONEY)
_FIELD, _RECORD = "\x1f", "\x1e"


def spell(amount: Decimal) -> str:
    """An amount as columns have it."""
    return f"{plain(amount):f}"


def frame_of(rows: Iterable[BillRow]) -> pl.DataFrame:
    """Rows as columns, in their order."""
    names = [field.name for field in fields(BillRow)]
    data = [
        (*values[:_AMOUNT], spell(values[_AMOUNT]), spell(values[_HOURS]), *values[_HOURS + 1 :])
        for values in (tuple(getattr(row, name) for name in names) for row in rows)
    ]
    return pl.DataFrame(data, schema=SCHEMA, orient="row")


def rows_of(frame: pl.DataFrame) -> list[BillRow]:
    """Columns as rows, in their order."""
    spelled = {*frame["amount"].unique().to_list(), *frame["node_hours"].unique().to_list()}
    money = {text: plain(Decimal(text)) for text in spelled}
    return [
        _row((*values[:_AMOUNT], money[values[_AMOUNT]], money[values[_HOURS]], *values[_HOURS + 1 :]))
        for values in frame.select(list(SCHEMA)).iter_rows()
    ]


def _row(values: tuple[Any, ...]) -> BillRow:
    return BillRow(*values)


def in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """The same rows in the one order that does not depend on how they came."""
    return frame.select(list(SCHEMA)).sort([*(name for name in SCHEMA if name not in _MONEY), *_MONEY])


def totals(frame: pl.DataFrame) -> dict[str, Decimal]:
    """The exact sum of each currency."""
    return {
        str(currency): total(map(Decimal, part["amount"].to_list()))
        for (currency,), part in sorted(frame.group_by("currency"))
    }


def digest(frame: pl.DataFrame) -> str:
    """A fingerprint of what the rows say, whatever their order; whatever library made them."""
    if frame.is_empty():
        return hashlib.sha256().hexdigest()
    text = pl.concat_str([pl.col(name).cast(pl.String) for name in SCHEMA], separator=_FIELD)
    lines = frame.select(text.alias("line"))["line"].sort().to_list()
    return hashlib.sha256(_RECORD.join(lines).encode()).hexdigest()


def pack(frame: pl.DataFrame) -> bytes:
    """Columns as Parquet, compressed."""
    buffer = BytesIO()
    frame.select(list(SCHEMA)).write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def unpack(content: bytes) -> pl.DataFrame:
    """What `pack` made.

    Raises:
        BudgetError: it is something else.
    """
    try:
        return pl.read_parquet(BytesIO(content)).select(list(SCHEMA))
    except (PolarsError, PanicException) as error:
        raise BudgetError(
            f"a stored bill cannot be read: {error}", "restore the database from a backup"
        ) from None

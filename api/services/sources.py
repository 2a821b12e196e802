"""Where bills come from: one source, or several that each have a part of the site's cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from api.db.bill_store import Pulled
from hpctools.budget.bill import BillRow
from hpctools.budget.bill_table import frame_of
from hpctools.budget.month import Month


class BillSource(Protocol):
    """Where bills come from."""

    @property
    def name(self) -> str:
        """Its name in the store."""
        ...

    def rows(self, month: Month) -> Iterable[BillRow] | pl.DataFrame | None:
        """The bill of a month as it is now; None when nothing was delivered yet, which changes nothing."""
        ...


@dataclass(frozen=True)
class Combined:
    """Several sources, none of which has money that another one has too.

    Attributes:
        parts: in the order in which they are asked.
    """

    parts: tuple[BillSource, ...]


def names(bills: BillSource | Combined) -> tuple[str, ...]:
    """The sources' names in the store."""
    return tuple(part.name for part in _parts(bills))


def pull(bills: BillSource | Combined, month: Month, metric: str) -> tuple[Pulled, ...]:
    """A month's bill of each source that has one.

    Raises:
        UnreachableError: a source does not answer.
        BudgetError: a source refuses, or answers something else than a bill.
    """
    answers = ((part.name, part.rows(month)) for part in _parts(bills))
    return tuple(_pulled(name, metric, month, rows) for name, rows in answers if rows is not None)


def _pulled(name: str, metric: str, month: Month, rows: Iterable[BillRow] | pl.DataFrame) -> Pulled:
    return Pulled(name, metric, month, rows if isinstance(rows, pl.DataFrame) else frame_of(rows))


def _parts(bills: BillSource | Combined) -> tuple[BillSource, ...]:
    return bills.parts if isinstance(bills, Combined) else (bills,)

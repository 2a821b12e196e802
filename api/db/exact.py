"""Exact decimals in both databases: NUMERIC in PostgreSQL, text and a summing function in SQLite.

SQLite has no decimal type: its NUMERIC is a binary float, which cannot hold 0.10.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from sqlalchemy import Dialect, Numeric, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

from hpctools.budget.money import ZERO, plain, total


class Exact(TypeDecorator[Decimal]):
    """A decimal of any size, never rounded."""

    impl = Numeric
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Text in SQLite, NUMERIC without limits elsewhere."""
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else Numeric())

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> Any:
        """One spelling for one amount."""
        if value is None:
            return None
        return f"{plain(value):f}" if dialect.name == "sqlite" else plain(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        """The amount as it was stored."""
        return None if value is None else plain(Decimal(value))


class exact_sum(FunctionElement[Decimal]):  # noqa: N801 - named as it is in SQL
    """SUM of an Exact column, exact in both databases."""

    type = Exact()
    inherit_cache = True


@compiles(exact_sum)
def _sum(element: exact_sum, compiler: SQLCompiler, **options: Any) -> str:
    return f"sum({compiler.process(element.clauses, **options)})"


@compiles(exact_sum, "sqlite")
def _sum_in_sqlite(element: exact_sum, compiler: SQLCompiler, **options: Any) -> str:
    return f"exact_sum({compiler.process(element.clauses, **options)})"


class ExactSum:
    """SQLite's aggregate `exact_sum(text)`."""

    def __init__(self) -> None:
        self._sum = ZERO

    def step(self, value: str | None) -> None:
        """Add one row."""
        if value is not None:
            self._sum = total((self._sum, Decimal(value)))

    def finalize(self) -> str:
        """The sum, as text."""
        return f"{self._sum:f}"

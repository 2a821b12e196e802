"""The tables of bills. Both are append-only: the database itself refuses UPDATE and DELETE."""

from __future__ import annotations

from datetime import date

from sqlalchemy import BigInteger, Date, Index, LargeBinary, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from api.db.base import Base, Id


class BillDay(Base):
    """One day of a source's bill as it was at one time; a new version when the provider restated it.

    Attributes:
        fetched_at: Unix seconds.
        digest: of the rows (`hpctools.budget.bill_table.digest`).
        row_count, estimated: of the rows; `estimated` when one is.
        content: the rows as Parquet (`hpctools.budget.bill_table.pack`).
    """

    __tablename__ = "bill_day"
    __table_args__ = (UniqueConstraint("source", "metric", "day", "version"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    source: Mapped[str] = mapped_column(String(64))
    metric: Mapped[str] = mapped_column(String(32))
    day: Mapped[date] = mapped_column(Date)
    version: Mapped[int]
    fetched_at: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str] = mapped_column(String(64))
    row_count: Mapped[int]
    estimated: Mapped[bool]
    content: Mapped[bytes] = mapped_column(LargeBinary)


class BillPull(Base):
    """One look at a source's bill of one month, whether or not anything had changed.

    Attributes:
        changed_days: how many days got a new version.
    """

    __tablename__ = "bill_pull"
    __table_args__ = (Index("bill_pull_by_month", "source", "metric", "month"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    source: Mapped[str] = mapped_column(String(64))
    metric: Mapped[str] = mapped_column(String(32))
    month: Mapped[str] = mapped_column(String(7))
    pulled_at: Mapped[int] = mapped_column(BigInteger)
    row_count: Mapped[int]
    changed_days: Mapped[int]

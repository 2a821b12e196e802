"""The tables. All are append-only: the database itself refuses UPDATE and DELETE.

Moments are Unix seconds, days are UTC.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from sqlalchemy import BigInteger, Date, ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from api.db.base import Base, Id
from api.db.exact import Exact


class JobVersion(Base):
    """One job as slurmdbd had it at one time; a new version when it changed (it ended, it was amended)."""

    __tablename__ = "job_version"
    __table_args__ = (
        UniqueConstraint("cluster", "dbindex", "version"),
        Index("job_version_by_time", "start", "end"),
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    cluster: Mapped[str] = mapped_column(String(64))
    dbindex: Mapped[int] = mapped_column(BigInteger)
    version: Mapped[int]
    seen_at: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[int] = mapped_column(BigInteger)
    user: Mapped[str] = mapped_column(String(128))
    account: Mapped[str] = mapped_column(String(128))
    partition: Mapped[str] = mapped_column(String(128))
    qos: Mapped[str] = mapped_column(String(128))
    submitted: Mapped[int] = mapped_column(BigInteger)
    start: Mapped[int] = mapped_column(BigInteger)
    end: Mapped[int | None] = mapped_column(BigInteger)
    suspended_seconds: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(32))
    cpus: Mapped[int] = mapped_column(BigInteger)
    memory_mb: Mapped[int] = mapped_column(BigInteger)
    gpus: Mapped[int] = mapped_column(BigInteger)
    shards: Mapped[int] = mapped_column(BigInteger)
    nodes: Mapped[str]
    reservation: Mapped[str] = mapped_column(String(256))


class AttributionRun(Base):
    """One reconciliation of a month that changed something."""

    __tablename__ = "attribution_run"
    __table_args__ = (Index("attribution_run_by_month", "month", "metric"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    month: Mapped[str] = mapped_column(String(7))
    metric: Mapped[str] = mapped_column(String(32))
    as_of: Mapped[int] = mapped_column(BigInteger)
    billed_through: Mapped[date | None] = mapped_column(Date)
    estimated: Mapped[bool]


class RunCoverage(Base):
    """How much of an account's use the bill covered in a run, in nano-node-seconds."""

    __tablename__ = "run_coverage"

    run_id: Mapped[int] = mapped_column(ForeignKey("attribution_run.id"), primary_key=True)
    account: Mapped[str] = mapped_column(String(128), primary_key=True)
    billed: Mapped[Decimal] = mapped_column(Exact)
    used: Mapped[Decimal] = mapped_column(Exact)


class LedgerEntry(Base):
    """A change of one attribution line; the sum of its entries is the line as it is known now."""

    __tablename__ = "ledger_entry"
    __table_args__ = (Index("ledger_entry_by_month", "month", "metric", "account"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("attribution_run.id"))
    month: Mapped[str] = mapped_column(String(7))
    metric: Mapped[str] = mapped_column(String(32))
    day: Mapped[date] = mapped_column(Date)
    node_group: Mapped[str] = mapped_column(String(256))
    kind: Mapped[str] = mapped_column(String(16))
    account: Mapped[str] = mapped_column(String(128))
    user: Mapped[str] = mapped_column(String(128))
    cluster: Mapped[str] = mapped_column(String(64))
    dbindex: Mapped[int] = mapped_column(BigInteger)
    job_id: Mapped[int] = mapped_column(BigInteger)
    currency: Mapped[str] = mapped_column(String(3))
    amount: Mapped[Decimal] = mapped_column(Exact)

"""The tables. All are append-only: the database itself refuses UPDATE and DELETE.

Moments are Unix seconds, days are UTC.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from sqlalchemy import BigInteger, Date, ForeignKey, Index, LargeBinary, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from api.db.base import Base, Id
from api.db.exact import Exact


class JobBatch(Base):
    """Jobs of one day of submission that were new or had changed when they were seen, as one document.

    The newest row of a job is what is known of it; a job stays with the day of its submission for ever.

    Attributes:
        day: of submission.
        first_start, until: the time that any of its rows changed, Unix seconds; `until` is None when a job
            was still running.
        content: Parquet, columns of `JobRecord`.
    """

    __tablename__ = "job_batch"
    __table_args__ = (Index("job_batch_by_day", "day"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    day: Mapped[date] = mapped_column(Date)
    seen_at: Mapped[int] = mapped_column(BigInteger)
    first_start: Mapped[int] = mapped_column(BigInteger)
    until: Mapped[int | None] = mapped_column(BigInteger)
    row_count: Mapped[int]
    digest: Mapped[str] = mapped_column(String(64))
    content: Mapped[bytes] = mapped_column(LargeBinary)


class JobPull(Base):
    """A window of days in which slurmdbd said something new; the same answer again is not read."""

    __tablename__ = "job_pull"
    __table_args__ = (Index("job_pull_by_window", "first", "end"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    first: Mapped[date] = mapped_column(Date)
    end: Mapped[date] = mapped_column(Date)
    seen_at: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str] = mapped_column(String(64))


class ReservationPull(Base):
    """What slurmdbd said of a month's reservations, when it was something new; the newest counts.

    Attributes:
        content: JSON, a list of `Reservation` as lists.
    """

    __tablename__ = "reservation_pull"
    __table_args__ = (Index("reservation_pull_by_month", "month"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    month: Mapped[str] = mapped_column(String(7))
    seen_at: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str] = mapped_column(String(64))
    content: Mapped[str] = mapped_column(Text)


class OwnNodesNote(Base):
    """What the site file said of own nodes when it was seen to say something new; of a day the newest counts.

    Attributes:
        first, end: the days that it counts for; `end` is exclusive.
        content: JSON (`hpctools.budget.own_nodes.to_text`).
    """

    __tablename__ = "own_nodes_note"

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    first: Mapped[date] = mapped_column(Date)
    end: Mapped[date] = mapped_column(Date)
    noted_at: Mapped[int] = mapped_column(BigInteger)
    content: Mapped[str] = mapped_column(Text)


class AttributionRun(Base):
    """One reconciliation of a month that changed something.

    Attributes:
        billed_by: the last day on which each source of the bill had nodes, JSON; `{}` of earlier releases.
        estimated: the bill may still change, or jobs ran.
        final: the month was over and nothing of it estimated; later entries are corrections.
    """

    __tablename__ = "attribution_run"
    __table_args__ = (Index("attribution_run_by_month", "month", "metric"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    month: Mapped[str] = mapped_column(String(7))
    metric: Mapped[str] = mapped_column(String(32))
    as_of: Mapped[int] = mapped_column(BigInteger)
    billed_through: Mapped[date | None] = mapped_column(Date)
    billed_by: Mapped[str] = mapped_column(Text, default="{}", server_default="{}")
    estimated: Mapped[bool]
    final: Mapped[bool]


class RunCoverage(Base):
    """How much of an account's use the bill covered in a run of the first release, in nano-node-seconds.

    Later runs have it by day in `AttributedDay.use`.
    """

    __tablename__ = "run_coverage"

    run_id: Mapped[int] = mapped_column(ForeignKey("attribution_run.id"), primary_key=True)
    account: Mapped[str] = mapped_column(String(128), primary_key=True)
    billed: Mapped[Decimal] = mapped_column(Exact)
    used: Mapped[Decimal] = mapped_column(Exact)


class AttributedDay(Base):
    """One day as a run divided it: what it was made from, and the parts down to jobs.

    Attributes:
        bill_digest, jobs_digest, policy_digest, counted_to: what the result depends on, and nothing else.
        places: amounts in `charges` and `jobs` are whole units of 10^-places.
        provisional: a job that bears a part of the bill was still running.
        charges, jobs, use: Parquet, columns of `hpctools.budget.attribution_table`.
    """

    __tablename__ = "attributed_day"
    __table_args__ = (
        UniqueConstraint("run_id", "day"),
        Index("attributed_day_by_day", "metric", "day"),
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("attribution_run.id"))
    metric: Mapped[str] = mapped_column(String(32))
    day: Mapped[date] = mapped_column(Date)
    bill_digest: Mapped[str] = mapped_column(String(64))
    jobs_digest: Mapped[str] = mapped_column(String(64))
    policy_digest: Mapped[str] = mapped_column(String(64))
    counted_to: Mapped[int] = mapped_column(BigInteger)
    places: Mapped[int]
    provisional: Mapped[bool]
    costs_digest: Mapped[str] = mapped_column(String(64))
    charges: Mapped[bytes] = mapped_column(LargeBinary)
    jobs: Mapped[bytes] = mapped_column(LargeBinary)
    use: Mapped[bytes] = mapped_column(LargeBinary)


class LedgerEntry(Base):
    """A change of what an account bears; the sum of its entries is what is known now.

    Attributes:
        user, cluster, dbindex, job_id: of entries of the first release; later ones have an account's sum, and
            `AttributedDay.jobs` the jobs.
        reason: what had changed since the day was divided before; see `api.db.ledger`.
    """

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
    capacity: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(String(32))


class ClearingEntry(Base):
    """The other side of a run's entries: what of the bill they divide. With them it sums to zero."""

    __tablename__ = "clearing_entry"
    __table_args__ = (UniqueConstraint("run_id", "day", "node_group", "capacity", "currency"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("attribution_run.id"))
    day: Mapped[date] = mapped_column(Date)
    node_group: Mapped[str] = mapped_column(String(256))
    capacity: Mapped[str] = mapped_column(String(16))
    currency: Mapped[str] = mapped_column(String(3))
    amount: Mapped[Decimal] = mapped_column(Exact)

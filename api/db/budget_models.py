"""Tables of budgets, alerts and enforcement. All are append-only: what is so now follows from what was added.

Moments are Unix seconds, days are UTC.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from sqlalchemy import BigInteger, Date, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from api.db.base import Base, Id
from api.db.exact import Exact


class BudgetVersion(Base):
    """A budget as somebody set it; the newest that is effective counts.

    Attributes:
        effective: it counts for the whole period that this day lies in.
        spec: JSON, in the words of the site file.
        from_site: the site file said so; `made_by` is then no person.
    """

    __tablename__ = "budget_version"
    __table_args__ = (Index("budget_version_by_account", "account", "id"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    account: Mapped[str] = mapped_column(String(128))
    effective: Mapped[date] = mapped_column(Date)
    spec: Mapped[str] = mapped_column(Text)
    from_site: Mapped[bool]
    made_at: Mapped[int] = mapped_column(BigInteger)
    made_by: Mapped[str] = mapped_column(String(256))
    why: Mapped[str] = mapped_column(Text)


class BudgetApproval(Base):
    """More than the budget, granted until a day (exclusive)."""

    __tablename__ = "budget_approval"
    __table_args__ = (Index("budget_approval_by_account", "account"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    account: Mapped[str] = mapped_column(String(128))
    granted: Mapped[date] = mapped_column(Date)
    amount: Mapped[Decimal] = mapped_column(Exact)
    until: Mapped[date] = mapped_column(Date)
    made_at: Mapped[int] = mapped_column(BigInteger)
    made_by: Mapped[str] = mapped_column(String(256))
    why: Mapped[str] = mapped_column(Text)


class BurnReading(Base):
    """What an account's jobs cost at one time, not rolled up to the accounts above.

    Attributes:
        days: what of `unbilled` ran on which UTC day: a JSON object of amounts as text.
    """

    __tablename__ = "burn_reading"
    __table_args__ = (UniqueConstraint("at", "account"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    at: Mapped[int] = mapped_column(BigInteger)
    account: Mapped[str] = mapped_column(String(128))
    per_hour: Mapped[Decimal] = mapped_column(Exact)
    unbilled: Mapped[Decimal] = mapped_column(Exact)
    jobs: Mapped[int]
    days: Mapped[str] = mapped_column(Text, default="{}", server_default="{}")


class BudgetAlert(Base):
    """A threshold that was reached: once for each budget, period, threshold and kind.

    Attributes:
        kind: `spent`, `forecast` or `enforce` (the grace before its policy begins).
        allowed, reached: what might be spent, and the amount that reached the threshold.
    """

    __tablename__ = "budget_alert"
    __table_args__ = (
        UniqueConstraint("version_id", "period_first", "threshold", "kind"),
        Index("budget_alert_by_account", "account", "id"),
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    version_id: Mapped[int] = mapped_column(ForeignKey("budget_version.id"))
    period_first: Mapped[date] = mapped_column(Date)
    threshold: Mapped[int]
    kind: Mapped[str] = mapped_column(String(16))
    account: Mapped[str] = mapped_column(String(128))
    at: Mapped[int] = mapped_column(BigInteger)
    currency: Mapped[str] = mapped_column(String(3))
    allowed: Mapped[Decimal] = mapped_column(Exact)
    reached: Mapped[Decimal] = mapped_column(Exact)


class AlertMessage(Base):
    """The outbox: an alert on its way to somebody, stored in the transaction that found the alert.

    Attributes:
        channel: `mail`, `sns` or `webhook`.
        key: the same in every attempt: whoever gets it twice knows.
        body: JSON.
    """

    __tablename__ = "alert_message"

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    alert_id: Mapped[int] = mapped_column(ForeignKey("budget_alert.id"))
    channel: Mapped[str] = mapped_column(String(16))
    target: Mapped[str] = mapped_column(Text)
    key: Mapped[str] = mapped_column(String(64), unique=True)
    body: Mapped[str] = mapped_column(Text)
    created_at: Mapped[int] = mapped_column(BigInteger)


class AlertAttempt(Base):
    """A try to deliver a message: `started`, then `sent` or `failed`; nothing if its process was killed."""

    __tablename__ = "alert_attempt"
    __table_args__ = (UniqueConstraint("message_id", "number", "state"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    message_id: Mapped[int] = mapped_column(ForeignKey("alert_message.id"))
    number: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    at: Mapped[int] = mapped_column(BigInteger)
    detail: Mapped[str] = mapped_column(Text)


class EnforcementAct(Base):
    """Something that was done to the cluster, or taken back; or is about to be.

    Attributes:
        account: whose budget it was done for.
        kind: `limit` (of an account), `hold` or `tier` (of a job).
        subject: the account or the job's id; `submitted`: of a job, since ids are used again; else 0.
        key: the limit in sacctmgr's word; "" for jobs' holds.
        before, after: canonical values; "" for none.
        state: `begun` before Slurm is told, `held` when it was read back, `returned` when it is as before,
            `left` when somebody else had changed it.
    """

    __tablename__ = "enforcement_act"
    __table_args__ = (Index("enforcement_act_by_subject", "kind", "subject", "id"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    at: Mapped[int] = mapped_column(BigInteger)
    by: Mapped[str] = mapped_column(String(256))
    account: Mapped[str] = mapped_column(String(128))
    kind: Mapped[str] = mapped_column(String(16))
    subject: Mapped[str] = mapped_column(String(128))
    submitted: Mapped[int] = mapped_column(BigInteger)
    key: Mapped[str] = mapped_column(String(32))
    before: Mapped[str] = mapped_column(Text)
    after: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(16))

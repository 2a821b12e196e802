"""Tables of who may do what and of who did what.

Moments are Unix seconds. `audit_entry`, `reconciliation` and `reconciliation_event` are append-only.
`api_token` is not: a token is revoked; `idempotent_answer` neither: it is forgotten after a day, and
`browser_session` when somebody signs out.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from api.db.base import Base, Id


class ApiToken(Base):
    """Somebody's rights; only a digest of the secret is kept.

    Attributes:
        account: the subtree that it opens; None for all.
        scopes: separated by spaces.
    """

    __tablename__ = "api_token"

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(String(128), unique=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    account: Mapped[str | None] = mapped_column(String(128))
    created_at: Mapped[int] = mapped_column(BigInteger)
    expires_at: Mapped[int | None] = mapped_column(BigInteger)
    revoked_at: Mapped[int | None] = mapped_column(BigInteger)
    scopes: Mapped[str] = mapped_column(String(64))


class BrowserSession(Base):
    """Somebody who signed in through the OpenID provider, until they sign out or it expires.

    Attributes:
        digest: of the secret in the browser's cookie.
        person: JSON: what the provider said of them (`api.services.sessions.Person`).
    """

    __tablename__ = "browser_session"

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    person: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[int] = mapped_column(BigInteger, index=True)


class AuditEntry(Base):
    """One change, chained to the one before: nothing in between can be changed or left out unnoticed.

    Attributes:
        before, after: JSON; `null` where there was or is nothing.
        previous, digest: SHA-256 of the entry before and of this one with it.
    """

    __tablename__ = "audit_entry"

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    at: Mapped[int] = mapped_column(BigInteger)
    principal: Mapped[str] = mapped_column(String(256))
    action: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(256))
    before: Mapped[str] = mapped_column(Text)
    after: Mapped[str] = mapped_column(Text)
    previous: Mapped[str] = mapped_column(String(64), unique=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)


class IdempotentAnswer(Base):
    """The answer to a request that may be sent again; no status while the first one is being answered."""

    __tablename__ = "idempotent_answer"
    __table_args__ = (UniqueConstraint("principal", "key"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    principal: Mapped[str] = mapped_column(String(256))
    key: Mapped[str] = mapped_column(String(64))
    fingerprint: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[int] = mapped_column(BigInteger)
    status: Mapped[int | None]
    headers: Mapped[str | None] = mapped_column(Text)
    body: Mapped[bytes | None] = mapped_column(LargeBinary)


class Reconciliation(Base):
    """A month that somebody, or the schedule, wants reconciled."""

    __tablename__ = "reconciliation"

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    month: Mapped[str] = mapped_column(String(7))
    principal: Mapped[str] = mapped_column(String(256))
    requested_at: Mapped[int] = mapped_column(BigInteger)


class ReconciliationEvent(Base):
    """What became of it; the last event is its state.

    Attributes:
        state: `running`, then `done`, `failed` or `lost` (its process ended in the middle).
        detail: JSON: what was done, or why not.
    """

    __tablename__ = "reconciliation_event"
    __table_args__ = (
        Index("reconciliation_event_by_run", "reconciliation_id", "id"),
        Index("reconciliation_event_by_time", "state", "at"),
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    reconciliation_id: Mapped[int] = mapped_column(ForeignKey("reconciliation.id"))
    at: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(16))
    detail: Mapped[str] = mapped_column(Text)

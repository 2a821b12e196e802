"""Tokens, the audit trail and reconciliations."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, field_validator

from api.auth.principal import Scope
from api.db.access_models import AuditEntry
from api.services.runs import Run, State
from api.services.tokens import NewToken, TokenInfo
from hpctools.budget.month import moment

MonthText = Annotated[str, Field(pattern=r"^2[01]\d{2}-(0[1-9]|1[0-2])$", examples=["2026-11"])]
Next = Annotated[
    str | None, Field(description="The `cursor` of the next page; null on the last.", examples=[None])
]

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$", examples=["5f" * 32])]


class TokenOut(BaseModel):
    """A token; never its secret."""

    name: str = Field(examples=["nlp-head"])
    account: str | None = Field(
        description="The subtree that it opens; null for an administrator.", examples=["nlp"]
    )
    scopes: list[Scope] = Field(examples=[["read", "write"]])
    created_at: datetime = Field(examples=["2026-11-01T09:00:00Z"])
    expires_at: datetime | None = Field(examples=["2027-09-30T00:00:00Z"])
    revoked_at: datetime | None = Field(examples=[None])

    @classmethod
    def of(cls, info: TokenInfo) -> TokenOut:
        """A token as it goes over the wire."""
        return cls(**_token(info))


class NewTokenOut(TokenOut):
    """A token that was just made."""

    secret: str = Field(
        description="What to send as `Authorization: Bearer`. Nobody can read it again.",
        examples=["hpct_3t6wY0mJZ1a9c2Qx8Lk5nRb7Vd4sEfGhUiOpTyWqAzX"],
    )


class TokensOut(BaseModel):
    """A page of tokens, by name."""

    tokens: list[TokenOut]
    next: Next


class TokenIn(BaseModel):
    """A token to be made."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$", examples=["nlp-head"])
    account: str | None = Field(
        default=None,
        max_length=128,
        description="The subtree that it opens; left out for an administrator.",
        examples=["nlp"],
    )
    user: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_.@-]{0,59}$",
        description="The login name of the person whose own it is; it is then listed as `user:USER:NAME`.",
        examples=["anna"],
    )
    scopes: list[Scope] = Field(default=["read"], min_length=1, max_length=4, examples=[["read", "write"]])
    expires_at: AwareDatetime | None = Field(default=None, examples=["2027-09-30T00:00:00Z"])

    @field_validator("expires_at")
    @classmethod
    def _whole(cls, value: datetime | None) -> datetime | None:
        if value is not None and not 2000 <= value.year < 2200:
            raise ValueError("a moment between the years 2000 and 2199")
        return value

    def new(self) -> NewToken:
        """What is to be made."""
        ends = int(self.expires_at.astimezone(timezone.utc).timestamp()) if self.expires_at else None
        return NewToken(self.name, self.account, tuple(dict.fromkeys(self.scopes)), ends, self.user)


class AuditOut(BaseModel):
    """One change."""

    id: int = Field(examples=[17])
    at: datetime = Field(examples=["2026-11-21T12:00:00Z"])
    principal: str = Field(
        description="A token's name (a person's own: `user:USER:NAME`), `oidc:USER` (`oidc:sub:SUBJECT` "
        "of who has no account), or `operator:USER` for work on the server itself.",
        examples=["nlp-head"],
    )
    action: str = Field(examples=["token.create"])
    subject: str = Field(examples=["nlp-guest"])
    before: JsonValue = Field(examples=[None])
    after: JsonValue = Field(examples=[{"name": "nlp-guest", "account": "nlp-lab-a"}])
    previous: Digest = Field(description="The digest of the entry before.")
    digest: Digest = Field(description="SHA-256 of this entry with the one before.")

    @classmethod
    def of(cls, entry: AuditEntry) -> AuditOut:
        """An entry as it goes over the wire."""
        return cls(
            id=entry.id,
            at=moment(entry.at),
            principal=entry.principal,
            action=entry.action,
            subject=entry.subject,
            before=json.loads(entry.before),
            after=json.loads(entry.after),
            previous=entry.previous,
            digest=entry.digest,
        )


class AuditTrailOut(BaseModel):
    """A page of the audit trail, the newest first."""

    entries: list[AuditOut]
    next: Next


class ReconciliationIn(BaseModel):
    """A month to be reconciled."""

    model_config = ConfigDict(extra="forbid")

    month: MonthText


class OutcomeOut(BaseModel):
    """What was new or had changed."""

    bill_days: int = Field(examples=[2])
    jobs: int = Field(examples=[1342])
    entries: int = Field(examples=[890])
    superseded: bool = Field(description="A newer run was there already.", examples=[False])


class ReconciliationOut(BaseModel):
    """One reconciliation."""

    id: int = Field(examples=[412])
    month: MonthText
    state: State = Field(examples=["done"])
    principal: str = Field(description="Who asked for it, or `schedule`.", examples=["schedule"])
    requested_at: datetime = Field(examples=["2026-11-21T12:00:00Z"])
    started_at: datetime | None = Field(examples=["2026-11-21T12:00:01Z"])
    ended_at: datetime | None = Field(examples=["2026-11-21T12:00:09Z"])
    outcome: OutcomeOut | None
    error: str | None = Field(examples=[None])
    remedy: str | None = Field(description="What to do about the error.", examples=[None])

    @classmethod
    def of(cls, run: Run) -> ReconciliationOut:
        """A run as it goes over the wire."""
        done = run.outcome
        return cls(
            id=run.id,
            month=str(run.month),
            state=run.state,
            principal=run.principal,
            requested_at=moment(run.requested_at),
            started_at=_moment(run.started_at),
            ended_at=_moment(run.ended_at),
            outcome=OutcomeOut(
                bill_days=done.bill_days, jobs=done.jobs, entries=done.entries, superseded=done.superseded
            )
            if done
            else None,
            error=run.error,
            remedy=run.remedy or None,
        )


class ReconciliationsOut(BaseModel):
    """A page of reconciliations, the newest first."""

    reconciliations: list[ReconciliationOut]
    next: Next


def _token(info: TokenInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "account": info.account,
        "scopes": list(info.scopes),
        "created_at": moment(info.created_at),
        "expires_at": _moment(info.expires_at),
        "revoked_at": _moment(info.revoked_at),
    }


def new_token(info: TokenInfo, secret: str) -> NewTokenOut:
    """A token that was just made, as it goes over the wire."""
    return NewTokenOut(**_token(info), secret=secret)


def _moment(seconds: int | None) -> datetime | None:
    return None if seconds is None else moment(seconds)

"""Answers that are kept for a day, so that a request that is sent again is not carried out again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sqlalchemy import Engine, delete, select, update
from sqlalchemy.orm import Session

from api.db.access_models import IdempotentAnswer
from api.db.engine import writing

KEPT_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Asked:
    """A request that may be sent again.

    Attributes:
        principal: whose key it is.
        key: digest of the client's key.
        fingerprint: digest of all that makes the request this one.
    """

    principal: str
    key: str
    fingerprint: str


@dataclass(frozen=True)
class Answer:
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Found: TypeAlias = "Answer | Literal['new', 'pending', 'other']"


def begin(engine: Engine, asked: Asked, now: int) -> Found:
    """Take a key for a request.

    Returns:
        `new`: carry it out, then `finish` or `forget`; the answer that was given before; `pending`: the first
        one is not answered yet, or its process ended in the middle and nobody knows how far it came; `other`:
        the key was used for another request.
    """
    with writing(engine) as session:
        session.execute(delete(IdempotentAnswer).where(IdempotentAnswer.created_at <= now - KEPT_SECONDS))
        row = _row(session, asked)
        if row is None:
            session.add(
                IdempotentAnswer(
                    principal=asked.principal, key=asked.key, fingerprint=asked.fingerprint, created_at=now
                )
            )
            return "new"
        if row.fingerprint != asked.fingerprint:
            return "other"
        if row.status is None:
            return "pending"
        return Answer(row.status, json.loads(row.headers or "{}"), row.body or b"")


def finish(engine: Engine, asked: Asked, answer: Answer) -> None:
    """Keep the answer to a request that was carried out."""
    with writing(engine) as session:
        session.execute(
            update(IdempotentAnswer)
            .where(IdempotentAnswer.principal == asked.principal, IdempotentAnswer.key == asked.key)
            .values(status=answer.status, headers=json.dumps(dict(answer.headers)), body=answer.body)
        )


def forget(engine: Engine, asked: Asked) -> None:
    """Give a key back: the request changed nothing."""
    with writing(engine) as session:
        session.execute(
            delete(IdempotentAnswer).where(
                IdempotentAnswer.principal == asked.principal, IdempotentAnswer.key == asked.key
            )
        )


def _row(session: Session, asked: Asked) -> IdempotentAnswer | None:
    return session.scalar(
        select(IdempotentAnswer).where(
            IdempotentAnswer.principal == asked.principal, IdempotentAnswer.key == asked.key
        )
    )

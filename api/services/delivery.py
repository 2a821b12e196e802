"""Messages on their way: each is tried until somebody took it, at least once, and says which one it is.

An attempt is stored before it is made. Who is killed in the middle leaves an attempt without an end; after
a while the next one begins, with the same key, so that the receiver can tell.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from api.db.budget_models import AlertAttempt, AlertMessage
from api.db.engine import reading, writing
from hpctools.errors import HpctoolsError

LEASE_SECONDS = 300
"""An attempt that has not ended after so long is nobody's any more."""
FIRST_WAIT = 60
LONGEST_WAIT = 6 * 3600
MOST_ATTEMPTS = 20
"""About three days; then the message stays `failed`."""


class DeliveryError(HpctoolsError):
    """A message was not taken; it is tried again."""


@dataclass(frozen=True)
class Message:
    """One message to somebody.

    Attributes:
        key: the same in every attempt.
        body: what the alert says: `text` for people, the rest for programs.
    """

    id: int
    channel: str
    target: str
    key: str
    body: Mapping[str, Any]


class Channel(Protocol):
    """A way to somebody."""

    def send(self, message: Message) -> None:
        """Deliver a message.

        Raises:
            DeliveryError: it was not taken.
        """
        ...


@dataclass(frozen=True)
class Delivered:
    """What a round of deliveries did."""

    sent: int = 0
    failed: int = 0


def deliver(engine: Engine, channels: Mapping[str, Channel], now: int) -> Delivered:
    """Try every message whose time has come, once.

    Args:
        channels: by name; messages of a channel that is not there fail, and are tried again.
    """
    sent = failed = 0
    for message, number in _ready(engine, now):
        if not _claim(engine, message, number, now):
            continue
        problem = _try(channels.get(message.channel), message)
        _end(engine, message, number, now, problem)
        sent, failed = sent + (problem is None), failed + (problem is not None)
    return Delivered(sent, failed)


def wait_after(attempts: int) -> int:
    """Seconds until the next attempt: a minute, doubled each time, six hours at most."""
    return int(min(FIRST_WAIT * 2 ** max(0, attempts - 1), LONGEST_WAIT))


def _ready(engine: Engine, now: int) -> list[tuple[Message, int]]:
    """Messages that are to be tried now, each with the number of the attempt."""
    with reading(engine) as session:
        sent = select(AlertAttempt.message_id).where(AlertAttempt.state == "sent")
        open_ones = session.scalars(
            select(AlertMessage).where(AlertMessage.id.not_in(sent)).order_by(AlertMessage.id)
        ).all()
        numbers = {row.id: _next(session, row.id, now) for row in open_ones}
        return [
            (Message(row.id, row.channel, row.target, row.key, json.loads(row.body)), number)
            for row in open_ones
            if (number := numbers[row.id]) is not None
        ]


def _next(session: Session, message: int, now: int) -> int | None:
    query = select(AlertAttempt).where(AlertAttempt.message_id == message).order_by(AlertAttempt.id)
    attempts: Sequence[AlertAttempt] = session.scalars(query).all()
    if not attempts:
        return 1
    last = attempts[-1]
    wait = LEASE_SECONDS if last.state == "started" else wait_after(last.number)
    return last.number + 1 if last.number < MOST_ATTEMPTS and now >= last.at + wait else None


def _claim(engine: Engine, message: Message, number: int, now: int) -> bool:
    """Whether the attempt is ours: the database takes each number once."""
    row = {"message_id": message.id, "number": number, "state": "started", "at": now, "detail": ""}
    try:
        with writing(engine) as session:
            session.execute(insert(AlertAttempt), [row])
    except IntegrityError:
        return False
    return True


def _try(channel: Channel | None, message: Message) -> str | None:
    """Why it was not taken; None when it was."""
    if channel is None:
        return f"the service has no way to send by {message.channel}"
    try:
        channel.send(message)
    except DeliveryError as error:
        return error.message
    return None


def _end(engine: Engine, message: Message, number: int, now: int, problem: str | None) -> None:
    state = "sent" if problem is None else "failed"
    row = {
        "message_id": message.id,
        "number": number,
        "state": state,
        "at": now,
        "detail": (problem or "")[:1000],
    }
    with writing(engine) as session:
        session.execute(insert(AlertAttempt), [row])

"""Reservations in the store: of each month a document for each answer of slurmdbd that was another one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import astuple
from datetime import date

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from api.db.models import ReservationPull
from hpctools.budget.month import DAY_SECONDS, Month, day_start
from hpctools.slurm.reservations import Reservation

_LATE_SECONDS = 45 * DAY_SECONDS


def wanted(session: Session, month: Month, now: int) -> bool:
    """Whether slurmdbd is to be asked for a month's reservations.

    Not long after its end: slurmdbd may have purged them by then, and they are what they were.
    """
    return now < day_start(month.end) + _LATE_SECONDS or _newest(session, month) is None


def append_reservations(
    session: Session, month: Month, reservations: Collection[Reservation], seen_at: int
) -> bool:
    """Store what slurmdbd says of a month, if it is news; return whether it was.

    An answer that is older than the one that is there changes nothing.
    """
    content = json.dumps([astuple(each) for each in sorted(reservations)])
    digest = digest_of(content)
    last = _newest(session, month)
    if (last is None and not reservations) or (last and (last.digest == digest or last.seen_at > seen_at)):
        return False
    row = {"month": str(month), "seen_at": seen_at, "digest": digest, "content": content}
    session.execute(insert(ReservationPull), [row])
    return True


def reservations_of(session: Session, month: Month) -> tuple[Reservation, ...]:
    """What is known of a month's reservations, sorted."""
    last = _newest(session, month)
    return tuple(_read(*values) for values in json.loads(last.content)) if last else ()


def digest_of(content: str) -> str:
    """The digest of a document."""
    return hashlib.sha256(content.encode()).hexdigest()


def on_day(reservations: Collection[Reservation], day: date) -> list[tuple[object, ...]]:
    """What of them matters on a day: what one was before and after does not."""
    begin, end = day_start(day), day_start(day) + DAY_SECONDS
    touching = [each for each in reservations if each.start < end and each.end > begin]
    return sorted(
        (each.cluster, max(each.start, begin), min(each.end, end), each.nodes, each.accounts)
        for each in touching
    )


def _read(cluster: str, name: str, start: int, end: int, nodes: str, accounts: list[str]) -> Reservation:
    return Reservation(cluster, name, start, end, nodes, tuple(accounts))


def _newest(session: Session, month: Month) -> ReservationPull | None:
    query = select(ReservationPull).where(ReservationPull.month == str(month))
    return session.scalars(query.order_by(ReservationPull.id.desc()).limit(1)).first()

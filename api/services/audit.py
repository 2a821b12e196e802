"""The audit trail: who changed what, when, from what to what. Entries are chained by their digests."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.auth.principal import Principal
from api.db.access_models import AuditEntry
from api.paging import Page, select_page

GENESIS = "0" * 64
"""What the first entry follows."""


@dataclass(frozen=True)
class Broken:
    """The first entry that does not follow from the one before it."""

    id: int
    reason: str


@dataclass(frozen=True)
class Wanted:
    """Which entries are asked for; None for any."""

    principal: str | None = None
    action: str | None = None
    subject: str | None = None


def record(
    session: Session,
    principal: Principal | str,
    action: str,
    subject: str,
    before: Any,
    after: Any,
    *,
    at: int,
) -> AuditEntry:
    """Tell a change in the transaction that carries it out: both are stored or neither.

    Args:
        session: of `api.db.engine.writing`: its lock keeps the chain in one line.
        principal: who did it; for what is done on the server itself, `operator:` and the Unix account.
        action: what was done, as `budget.set`.
        subject: on what, as `nlp`.
        before, after: anything that JSON can hold, without secrets; None where there was or is nothing.
        at: Unix seconds.
    """
    name = principal if isinstance(principal, str) else principal.name
    last = session.scalar(select(AuditEntry).order_by(AuditEntry.id.desc()).limit(1))
    entry = AuditEntry(
        at=at,
        principal=name,
        action=action,
        subject=subject,
        before=_text(before),
        after=_text(after),
        previous=last.digest if last else GENESIS,
    )
    entry.digest = _digest(entry)
    session.add(entry)
    session.flush()
    return entry


def verify(session: Session) -> Broken | None:
    """Check the whole chain; None when nothing was changed or taken out of its middle.

    That entries were cut off its end shows only to those who noted the last digest elsewhere.
    """
    query = select(AuditEntry).order_by(AuditEntry.id).execution_options(yield_per=1000)
    previous = GENESIS
    with closing(session.scalars(query)) as entries:
        for entry in entries:
            if entry.previous != previous:
                return Broken(entry.id, "the entry before it is not the one that it was written after")
            if entry.digest != _digest(entry):
                return Broken(entry.id, "it is not what was written")
            previous = entry.digest
    return None


def head(session: Session) -> str:
    """The digest of the last entry, to be noted where the database's owner cannot change it."""
    last = session.scalar(select(AuditEntry.digest).order_by(AuditEntry.id.desc()).limit(1))
    return last or GENESIS


@dataclass(frozen=True)
class Told:
    """What an entry says."""

    action: str
    subject: str
    after: Any
    at: int

    def tells(self, action: str, subject: str, after: Any, since: int) -> bool:
        """Whether it says this, and not of something earlier."""
        return (self.action, self.subject, self.after) == (action, subject, after) and self.at >= since


def newest(session: Session, count: int) -> list[Told]:
    """The last entries, the newest first."""
    columns = (AuditEntry.action, AuditEntry.subject, AuditEntry.after, AuditEntry.at)
    rows = session.execute(select(*columns).order_by(AuditEntry.id.desc()).limit(count))
    return [Told(action, subject, json.loads(after), at) for action, subject, after, at in rows]


def listed(session: Session, page: Page, wanted: Wanted) -> tuple[list[AuditEntry], str | None]:
    """Entries, the newest first, and the cursor of the next page."""
    filters = {name: value for name, value in vars(wanted).items() if value is not None}
    query = select(AuditEntry).filter_by(**filters)
    listing = f"audit {sorted(filters.items())}"
    query = select_page(query, page, listing, [AuditEntry.id], [int], descending=True)
    return page.next(listing, session.scalars(query).all(), lambda entry: (entry.id,))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _digest(entry: AuditEntry) -> str:
    fields = (
        entry.previous,
        entry.at,
        entry.principal,
        entry.action,
        entry.subject,
        entry.before,
        entry.after,
    )
    return hashlib.sha256(_text(fields).encode()).hexdigest()

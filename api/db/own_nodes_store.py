"""What the site file said of own nodes, in the store: a note for each thing that it was seen to say."""

from __future__ import annotations

from datetime import date, timedelta

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from api.db.bill_models import BillPull
from api.db.models import OwnNodesNote
from hpctools.budget.month import day_of
from hpctools.budget.own_nodes import BEGINNING, NEVER, Noted, OwnHistory, of_text, own_nodes, to_text
from hpctools.budget.rate_card import SOURCE
from hpctools.budget.tree import BudgetSite


def history(session: Session) -> OwnHistory:
    """All that was noted."""
    notes = session.scalars(select(OwnNodesNote).order_by(OwnNodesNote.id))
    return OwnHistory(tuple(Noted(note.first, note.end, of_text(note.content)) for note in notes))


def is_new(known: OwnHistory, site: BudgetSite, today: date) -> bool:
    """Whether the site file says something else of own nodes than what counts today."""
    own = own_nodes(site)
    counting = known.on(today)
    return own != counting if counting is not None else bool(own.prices)


def note(session: Session, site: BudgetSite, today: date, now: int) -> None:
    """Keep what the site file says, if it is new: it counts from today, and for days that nobody has billed.

    The first note counts for all days before, too.
    """
    known = history(session)
    if is_new(known, site, today):
        first = _unbilled(session, today) if known.notes else BEGINNING
        _insert(session, site, first, NEVER, now)


def _unbilled(session: Session, today: date) -> date:
    """The first day until today that was not there when own nodes were billed last."""
    last = session.scalar(select(func.max(BillPull.pulled_at)).where(BillPull.source == SOURCE))
    return BEGINNING if last is None else min(today, day_of(last) + timedelta(days=1))


def note_again(session: Session, site: BudgetSite, first: date, end: date, now: int) -> None:
    """Have what the site file says now count for days that are over as well; `end` is exclusive."""
    _insert(session, site, first, end, now)


def _insert(session: Session, site: BudgetSite, first: date, end: date, now: int) -> None:
    row = {"first": first, "end": end, "noted_at": now, "content": to_text(own_nodes(site))}
    session.execute(insert(OwnNodesNote), [row])

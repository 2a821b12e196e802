"""Reconciliations as they are asked for, carried out and told: append-only, the last event is the state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from sqlalchemy import Engine, Select, func, select
from sqlalchemy.orm import Session, aliased

from api.auth.principal import Principal
from api.db.access_models import Reconciliation, ReconciliationEvent
from api.db.engine import reading
from api.paging import MOST, Page, select_page
from api.services import audit
from api.services.reconcile import Outcome
from hpctools.budget.month import Month
from hpctools.errors import HpctoolsError

State = Literal["queued", "running", "done", "failed", "lost"]
STATES: tuple[State, ...] = ("queued", "running", "done", "failed", "lost")

SCHEDULE = "schedule"
"""The principal of what nobody asked for by name."""

_TRIES = 3


@dataclass(frozen=True)
class Run:
    """One reconciliation.

    Attributes:
        principal: who asked for it.
        requested_at, started_at, ended_at: Unix seconds.
        outcome: what was new or changed, of one that is done.
        error: why it failed, in words that anybody may read.
        remedy: what to do about it; empty when there is nothing to say.
    """

    id: int
    month: Month
    principal: str
    state: State
    requested_at: int
    started_at: int | None = None
    ended_at: int | None = None
    outcome: Outcome | None = None
    error: str | None = None
    remedy: str = ""


def ask(session: Session, month: Month, by: Principal | str, now: int) -> Run:
    """Queue a month; one that is queued already is not queued twice."""
    for run in waiting(session):
        if run.month == month:
            return run
    name = by if isinstance(by, str) else by.name
    row = Reconciliation(month=str(month), principal=name, requested_at=now)
    session.add(row)
    session.flush()
    if name != SCHEDULE:
        audit.record(session, by, "reconciliation.start", str(month), None, {"id": row.id}, at=now)
    return Run(row.id, month, name, "queued", now)


def begun(session: Session, run: Run, now: int) -> None:
    """A run is being carried out."""
    _tell(session, run.id, "running", {}, now)


def done(session: Session, run: Run, outcome: Outcome, now: int) -> None:
    """A run has ended well."""
    _tell(session, run.id, "done", asdict(outcome) | {"month": str(outcome.month)}, now)


def failed(session: Session, run: Run, error: HpctoolsError, now: int) -> None:
    """A run has ended with an error."""
    _tell(session, run.id, "failed", {"error": error.message, "remedy": error.remedy}, now)


def lost(session: Session, run: Run, error: HpctoolsError, now: int) -> None:
    """A run was cut off: the database went away under it."""
    _tell(session, run.id, "lost", {"error": error.message, "remedy": error.remedy}, now)


def running(session: Session) -> list[Run]:
    """Runs that have begun, and of which no end was told."""
    return _read(session, _newest().where(_state() == "running"))


def bury(session: Session, now: int) -> list[Run]:
    """Mark runs as lost that a dead process had begun; return them.

    Only for who holds the lock: then nobody else can be at work on them.
    """
    orphans = running(session)
    for run in orphans:
        _tell(
            session, run.id, "lost", {"error": "its process, or the database, went away before its end"}, now
        )
    return orphans


def again(session: Session, cut_off: Iterable[Run], now: int) -> None:
    """Queue months anew whose runs were lost. One that is lost time after time waits for the schedule."""
    for run in cut_off:
        months = _newest().where(Reconciliation.month == str(run.month)).order_by(None)
        newest = _read(session, months.order_by(Reconciliation.id.desc()).limit(_TRIES))
        if len(newest) < _TRIES or any(each.state != "lost" for each in newest):
            ask(session, run.month, SCHEDULE, now)


def waiting(session: Session) -> list[Run]:
    """Queued runs, the oldest first."""
    events = select(ReconciliationEvent.id).where(ReconciliationEvent.reconciliation_id == Reconciliation.id)
    return _read(session, _newest().where(~events.correlate(Reconciliation).exists()))


def get(session: Session, number: int) -> Run | None:
    """One run."""
    found = _read(session, _newest().where(Reconciliation.id == number))
    return found[0] if found else None


def last(session: Session, month: Month, states: Iterable[State] = STATES) -> Run | None:
    """The newest run of a month that is in one of some states."""
    query = _newest().where(Reconciliation.month == str(month), _state().in_(list(states)))
    found = _read(session, query.order_by(None).order_by(Reconciliation.id.desc()).limit(1))
    return found[0] if found else None


def listed(
    session: Session, page: Page, month: Month | None, state: State | None
) -> tuple[list[Run], str | None]:
    """Runs, the newest first, and the cursor of the next page."""
    query = _newest().order_by(None)
    if month is not None:
        query = query.where(Reconciliation.month == str(month))
    if state is not None:
        query = query.where(_state() == state)
    listing = f"reconciliations {month} {state}"
    query = select_page(query, page, listing, [Reconciliation.id], [int], descending=True)
    return page.next(listing, _read(session, query), lambda run: (run.id,))


def every(engine: Engine) -> Iterator[Run]:
    """All runs, the newest first, never many of them in memory.

    Raises:
        UnreachableError: the database does not answer.
    """
    page: Page | None = Page(MOST)
    while page is not None:
        with reading(engine) as session:
            found, following = listed(session, page, None, None)
        yield from found
        page = Page(MOST, following) if following else None


def counts(session: Session) -> dict[State, int]:
    """How many runs are in each state."""
    query = (
        _newest().order_by(None).with_only_columns(_state().label("state"), func.count()).group_by("state")
    )
    found = {row[0]: row[1] for row in session.execute(query)}
    return {state: found.get(state, 0) for state in STATES}


def _tell(session: Session, number: int, state: State, detail: dict[str, Any], now: int) -> None:
    session.add(ReconciliationEvent(reconciliation_id=number, at=now, state=state, detail=json.dumps(detail)))
    session.flush()


def _latest() -> Any:
    event = aliased(ReconciliationEvent)
    return (
        select(func.max(event.id))
        .where(event.reconciliation_id == Reconciliation.id)
        .correlate(Reconciliation)
        .scalar_subquery()
    )


def _state() -> Any:
    return func.coalesce(ReconciliationEvent.state, "queued")


def _newest() -> Any:
    """Each run with its last event."""
    return (
        select(Reconciliation, ReconciliationEvent)
        .outerjoin(ReconciliationEvent, ReconciliationEvent.id == _latest())
        .order_by(Reconciliation.id)
    )


def _read(session: Session, query: Select[Any]) -> list[Run]:
    rows = session.execute(query).all()
    starts = _starts(session, [row[0].id for row in rows])
    return [_run(asked, event, starts.get(asked.id)) for asked, event in rows]


def _starts(session: Session, numbers: list[int]) -> dict[int, int]:
    query = select(ReconciliationEvent.reconciliation_id, ReconciliationEvent.at).where(
        ReconciliationEvent.state == "running", ReconciliationEvent.reconciliation_id.in_(numbers)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def _run(asked: Reconciliation, event: ReconciliationEvent | None, started: int | None) -> Run:
    month = Month.parse(asked.month)
    detail = json.loads(event.detail) if event else {}
    ended = event is not None and event.state != "running"
    return Run(
        id=asked.id,
        month=month,
        principal=asked.principal,
        state=cast(State, event.state) if event else "queued",
        requested_at=asked.requested_at,
        started_at=started,
        ended_at=event.at if event and ended else None,
        outcome=Outcome(**{**detail, "month": month}) if event and event.state == "done" else None,
        error=detail.get("error"),
        remedy=detail.get("remedy", ""),
    )

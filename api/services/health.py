"""How the books are kept: when they were reconciled last, and how far the bill reaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Engine

from api.db.engine import reading
from api.db.ledger import knowledge
from api.services import runs
from api.services.runs import State
from hpctools.budget.month import Month
from hpctools.budget.statement import Knowledge


@dataclass(frozen=True)
class Health:
    """What operators watch.

    Attributes:
        done_at: when the month was last reconciled without an error, in Unix seconds; None for never.
        took: seconds that it took.
        counts: how many reconciliations are in which state.
        billed_through: the last day that the month's bill has.
        coverage: part of the month's node time whose bill has arrived, 0 to 1; None without jobs.
    """

    done_at: int | None
    took: int | None
    counts: Mapping[State, int]
    billed_through: date | None
    coverage: float | None


def read_health(engine: Engine, metric: str, month: Month) -> Health:
    """The state of a month's books.

    Raises:
        UnreachableError: the database does not answer.
    """
    with reading(engine) as session:
        run = runs.last(session, month, ("done",))
        known = knowledge(session, month, metric)
        return Health(
            done_at=run.ended_at if run else None,
            took=run.ended_at - run.started_at if run and run.ended_at and run.started_at else None,
            counts=runs.counts(session),
            billed_through=known.billed_through if known else None,
            coverage=_coverage(known),
        )


def _coverage(known: Knowledge | None) -> float | None:
    used = sum(part.used for part in known.coverage.values()) if known else 0
    billed = sum(part.billed for part in known.coverage.values()) if known else 0
    return billed / used if used else None

"""In which state a store is, for what is worked out once for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Engine, func, select

from api.db.access_models import ReconciliationEvent
from api.db.budget_models import BudgetApproval, BudgetVersion, BurnReading
from api.db.looks import Noted, looking
from api.db.models import AttributionRun


class State(NamedTuple):
    """The last rows of the tables that tell of money: each is append-only. None: it has none yet.

    A reconciliation's end is one, too: from then on what ran counts as billed.
    """

    run: int | None
    budget: int | None
    approval: int | None
    burn: int | None
    event: int | None


STATE = tuple(
    select(func.max(table.id)).scalar_subquery()
    for table in (AttributionRun, BudgetVersion, BudgetApproval, BurnReading, ReconciliationEvent)
)
"""The columns of a state, for a query that asks for it along with something else: see `note`."""

_STATE = select(*STATE)
_noted: Noted[State] = Noted()


def money_state(engine: Engine) -> State:
    """Changes whenever anything does that is told of money and budgets.

    Raises:
        UnreachableError: the database does not answer.
    """
    known = _noted.of(engine)
    if known is not None:
        return known
    with looking(engine) as connection:
        return note(engine, connection.execute(_STATE).one())


def note(engine: Engine, columns: Iterable[int | None]) -> State:
    """Keep a state for the rest of a question whose short questions go together (`looks_together`)."""
    state = State(*columns)
    _noted.keep(engine, state)
    return state

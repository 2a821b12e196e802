"""In which state a store is, for what is worked out once for each."""

from __future__ import annotations

from sqlalchemy import Engine, func, select

from api.db.budget_models import BudgetApproval, BudgetVersion, BurnReading
from api.db.engine import reachable
from api.db.models import AttributionRun

_TABLES = (AttributionRun, BudgetVersion, BudgetApproval, BurnReading)
_NEWEST = select(*(select(func.max(table.id)).scalar_subquery() for table in _TABLES))


def money_state(engine: Engine) -> tuple[int | None, ...]:
    """Changes whenever anything does that is told of money and budgets: these tables are append-only.

    Raises:
        UnreachableError: the database does not answer.
    """
    with reachable(), engine.connect() as connection:
        return tuple(connection.execute(_NEWEST).one())

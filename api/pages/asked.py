"""What a page's address asks for."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Query

from api.deps import Ctx
from api.pages.periods import any_days, parse_period
from api.problems import ProblemError
from hpctools.budget.allowance import Period
from hpctools.budget.month import Month, day_of
from hpctools.errors import BudgetError


async def get_period(
    context: Ctx,
    period: Annotated[str | None, Query(max_length=32)] = None,
    month: Annotated[str | None, Query(max_length=32)] = None,
    first: Annotated[str | None, Query(alias="from", max_length=32)] = None,
    last: Annotated[str | None, Query(alias="to", max_length=32)] = None,
) -> Period:
    """The days that a page shows: `period`, `month`, or `from` and `to`; else the present month.

    Raises:
        ProblemError: 422, these are no days.
    """
    try:
        if first and last:
            return any_days(first, last)
        present = Month.of(day_of(context.clock()))
        return parse_period(period or month or str(present))
    except BudgetError as error:
        field = {"field": "period", "message": str(error)}
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, f"{error}.", errors=(field,)) from None


PagePeriod = Annotated[Period, Depends(get_period)]
"""The days that a page shows."""

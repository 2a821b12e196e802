"""Which days a request is about, and as they were known when."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Query

from api.deps import Ctx
from api.problems import ProblemError
from api.schemas.access import MonthText
from hpctools.budget.allowance import Period
from hpctools.budget.month import Month, day_of

MOST_DAYS = 366

_DAY = r"2[01]\d{2}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d"
DayText = Annotated[str, Query(pattern=f"^{_DAY}$", examples=["2026-11-01"])]


async def get_period(
    context: Ctx,
    month: Annotated[MonthText | None, Query(description="All of a month.", examples=["2026-11"])] = None,
    first: Annotated[DayText | None, Query(alias="from", description="The first UTC day.")] = None,
    last: Annotated[DayText | None, Query(alias="to", description="The last UTC day.")] = None,
) -> Period:
    """The days of a request: a month, or `from` and `to`; the present month when it names none.

    Raises:
        ProblemError: 422, there are no such days, too many, or they are told in two ways.
    """
    if first is None and last is None:
        chosen = Month.parse(month) if month else Month.of(day_of(context.clock()))
        return Period(chosen.start, chosen.end)
    if month is not None or first is None or last is None:
        raise _refused("from", "give `month`, or `from` and `to`")
    period = Period(_day("from", first), _day("to", last) + timedelta(days=1))
    if not 0 < period.days <= MOST_DAYS:
        raise _refused("to", f"must be 0 to {MOST_DAYS - 1} days after `from`")
    return period


KnownOnText = Annotated[
    str | None,
    Query(
        pattern=f"^{_DAY}T{_TIME}Z$",
        description="As it was known then; as it is known now when left out.",
        examples=["2026-12-01T12:00:00Z"],
    ),
]


async def get_known_on(known_on: KnownOnText = None) -> int | None:
    """The moment of a request's query."""
    return known_moment(known_on)


def known_moment(known_on: str | None) -> int | None:
    """The moment (Unix seconds) of which a request wants to know what was known; None for now.

    Raises:
        ProblemError: 422, there is no such moment.
    """
    if known_on is None:
        return None
    try:
        return int(datetime.fromisoformat(known_on).replace(tzinfo=timezone.utc).timestamp())
    except ValueError:
        raise _refused("known_on", "is no moment") from None


Days = Annotated[Period, Depends(get_period)]
KnownOn = Annotated[int | None, Depends(get_known_on)]


def _day(name: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise _refused(name, "is no day") from None


def _refused(name: str, message: str) -> ProblemError:
    told = {"field": f"query.{name}", "message": message}
    return ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, f"query.{name}: {message}", errors=(told,))

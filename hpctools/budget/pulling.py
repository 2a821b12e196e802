"""Which months' bills to look at now. Pure.

A provider restates a month for weeks, and sometimes one that it has closed long ago (refunds, tags that were
activated late): what is still open is looked at often, what is closed seldom but for long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpctools.budget.month import DAY_SECONDS, Month, day_of

OPEN_SECONDS = DAY_SECONDS
"""Between two looks at an earlier month that is not closed yet."""
CLOSED_SECONDS = 7 * DAY_SECONDS
"""Between two looks at a month that closed lately."""
OLD_SECONDS = 30 * DAY_SECONDS
"""Between two looks at a month before those."""
LATELY_MONTHS = 4
FURTHEST_MONTHS = 12
"""AWS backfills tags for twelve months, and Cost Explorer keeps fourteen."""


@dataclass(frozen=True)
class MonthKnown:
    """What is known of a month.

    Attributes:
        pulled_at: Unix seconds of the last look.
        estimated: its figures may still change, or there are none.
    """

    pulled_at: int
    estimated: bool


def months_to_pull(now: int, known: Mapping[Month, MonthKnown]) -> tuple[Month, ...]:
    """The months to look at, newest first: always the present one, and the earlier ones that are due.

    The month before is looked at even when nothing is known of it; older ones only when they were known.

    Args:
        now: Unix seconds.
        known: of one source, or of a reconciliation of all of them.
    """
    present, *earlier = looked_at(now)
    due = [present]
    for age, month in enumerate(earlier, 1):
        if month in known:
            last = known[month]
            # A clock that was set back does not keep us waiting until it has caught up.
            if not 0 <= now - last.pulled_at < _pause(age, last):
                due.append(month)
        elif age == 1:
            due.append(month)
    return tuple(due)


def looked_at(now: int) -> tuple[Month, ...]:
    """Every month that is looked at from time to time, newest first."""
    months = [Month.of(day_of(now))]
    while len(months) <= FURTHEST_MONTHS:
        months.append(months[-1].previous)
    return tuple(months)


def _pause(age: int, known: MonthKnown) -> int:
    if known.estimated:
        return OPEN_SECONDS
    return CLOSED_SECONDS if age <= LATELY_MONTHS else OLD_SECONDS

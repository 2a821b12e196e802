from __future__ import annotations

from datetime import date

import pytest

from hpctools.budget.month import Month, day_start
from hpctools.budget.pulling import MonthKnown, months_to_pull

NOW = day_start(date(2026, 11, 21)) + 3600
NOVEMBER = Month(2026, 11)
OCTOBER, SEPTEMBER, AUGUST = Month(2026, 10), Month(2026, 9), Month(2026, 8)
HOUR = 3600


def known(hours: float, estimated: bool = False) -> MonthKnown:
    return MonthKnown(NOW - int(hours * HOUR), estimated)


def test_a_new_site_reads_the_present_month_and_the_one_before() -> None:
    assert months_to_pull(NOW, {}) == (NOVEMBER, OCTOBER)


def test_the_present_month_is_always_looked_at() -> None:
    assert months_to_pull(NOW, {NOVEMBER: known(0, True), OCTOBER: known(0)}) == (NOVEMBER,)


@pytest.mark.parametrize(
    ("month", "last", "due"),
    [
        (OCTOBER, known(23.9, estimated=True), False),
        (OCTOBER, known(24, estimated=True), True),
        (SEPTEMBER, known(24, estimated=True), True),
        # A clock that was set back.
        (OCTOBER, known(-1), True),
        (OCTOBER, known(6 * 24), False),
        (OCTOBER, known(7 * 24), True),
        # A bill that is restated three months later is picked up within a week ...
        (AUGUST, known(7 * 24), True),
        (Month(2026, 7), known(7 * 24), True),
        # ... and later within a month, as long as AWS backfills.
        (Month(2026, 6), known(7 * 24), False),
        (Month(2026, 6), known(30 * 24), True),
        (Month(2025, 11), known(30 * 24), True),
        (Month(2025, 10), known(1000 * 24, estimated=True), False),
    ],
)
def test_how_often_earlier_months_are_looked_at(month: Month, last: MonthKnown, due: bool) -> None:
    months = months_to_pull(NOW, {OCTOBER: known(0), month: last})
    assert (month in months) is due


def test_every_known_month_of_the_last_year_is_looked_at_again() -> None:
    months = [NOVEMBER]
    for _ in range(12):
        months.append(months[-1].previous)
    long_ago = {month: MonthKnown(0, False) for month in [*months, months[-1].previous]}
    assert months_to_pull(NOW, long_ago) == tuple(months)

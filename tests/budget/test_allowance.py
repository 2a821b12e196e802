from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.budget.allowance import Calendar, Period, Spec, check_split, period_of
from hpctools.errors import BudgetError

TERMS = Calendar("terms", ((4, 1), (10, 1)))
ACADEMIC = Calendar("yearly", ((10, 1),))
GRANT = Calendar("once", (), date(2026, 10, 1), date(2027, 4, 1))


def usd(amount: str, calendar: Calendar = Calendar(), **more: object) -> Spec:  # noqa: B008
    return Spec(Decimal(amount), "USD", calendar, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("calendar", "day", "first", "end"),
    [
        (Calendar(), date(2026, 12, 31), date(2026, 12, 1), date(2027, 1, 1)),
        (Calendar("quarterly"), date(2026, 11, 21), date(2026, 10, 1), date(2027, 1, 1)),
        (Calendar("quarterly", ((2, 15),)), date(2026, 1, 3), date(2025, 11, 15), date(2026, 2, 15)),
        (Calendar("yearly"), date(2026, 1, 1), date(2026, 1, 1), date(2027, 1, 1)),
        (ACADEMIC, date(2026, 9, 30), date(2025, 10, 1), date(2026, 10, 1)),
        (ACADEMIC, date(2026, 10, 1), date(2026, 10, 1), date(2027, 10, 1)),
        (TERMS, date(2026, 3, 31), date(2025, 10, 1), date(2026, 4, 1)),
        (TERMS, date(2026, 4, 1), date(2026, 4, 1), date(2026, 10, 1)),
        (GRANT, date(2027, 3, 31), date(2026, 10, 1), date(2027, 4, 1)),
    ],
)
def test_the_period_of_a_day(calendar: Calendar, day: date, first: date, end: date) -> None:
    assert period_of(calendar, day) == Period(first, end)


@pytest.mark.parametrize("day", [date(2026, 9, 30), date(2027, 4, 1)])
def test_a_grant_has_one_period(day: date) -> None:
    assert period_of(GRANT, day) is None


@given(
    st.sampled_from([Calendar(), Calendar("quarterly"), Calendar("yearly"), ACADEMIC, TERMS]),
    st.dates(date(2001, 1, 1), date(2150, 1, 1)),
)
def test_periods_follow_each_other_without_gap_or_overlap(calendar: Calendar, day: date) -> None:
    period = period_of(calendar, day)
    assert period is not None
    assert day in period
    after = period_of(calendar, period.end)
    before = period_of(calendar, period.first - timedelta(days=1))
    assert after is not None
    assert before is not None
    assert (after.first, before.end) == (period.end, period.first)


def test_parts_may_be_as_much_as_there_is_and_no_more() -> None:
    check_split(usd("100.00"), [usd("60"), usd("40")])
    with pytest.raises(BudgetError, match=r"nlp add up to 100\.01 USD, and it has 100; give 0\.01 less"):
        check_split(usd("100"), [usd("60"), usd("40.01")], "nlp")
    check_split(usd("100", over_commit=True), [usd("60"), usd("400")])
    check_split(None, [usd("60")])


@pytest.mark.parametrize("part", [usd("1", ACADEMIC), Spec(Decimal(1), "EUR")])
def test_parts_that_cannot_be_compared_are_refused(part: Spec) -> None:
    with pytest.raises(BudgetError, match="other periods or in another currency"):
        check_split(usd("100"), [part])

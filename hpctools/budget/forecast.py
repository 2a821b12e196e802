"""What a period will have cost when it is over, as a range. Pure and deterministic.

The method is the mean method of Hyndman and Athanasopoulos, "Forecasting: Principles and Practice" (3rd ed.,
sections 5.2 and 5.5), for a sum of days instead of one: the rest of the period goes like the mean of the last
complete days, up to four whole weeks. Of `n` days with the variance v, the sum of h more has the variance
v * (h + h*h/n), which grows by (1 + r) / (1 - r) when each day resembles the one before it (r, the first
autocorrelation, plus (1 + 3r) / n: few days show too little of it; Kendall 1954, Biometrika 41). The range
holds `COVERS` percent, by Student's t with n - 1 degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from itertools import pairwise

from hpctools.budget.money import ZERO, to_places

COVERS = 80
"""Percent of periods that end within the range, if spending goes on as it went."""
FEWEST_DAYS = 3
MOST_DAYS = 28
_WEEK = 7
_MOST_LIKE = Decimal("0.9")

# Student's t, 90 % one-sided, by degrees of freedom from 1 on.
_T = (
    *("3.078", "1.886", "1.638", "1.533", "1.476", "1.440", "1.415", "1.397", "1.383", "1.372", "1.363"),
    *("1.356", "1.350", "1.345", "1.341", "1.337", "1.333", "1.330", "1.328", "1.325", "1.323", "1.321"),
    *("1.319", "1.318", "1.316", "1.315", "1.314"),
)


@dataclass(frozen=True)
class Forecast:
    """What will have been spent at a period's end, rounded to cents.

    Attributes:
        low, high: `COVERS` percent of periods end between them.
        days: how many days it was worked out from.
    """

    expected: Decimal
    low: Decimal
    high: Decimal
    days: int


def forecast(daily: Sequence[Decimal], spent: Decimal, remaining: Decimal) -> Forecast | None:
    """Where a period ends.

    Args:
        daily: what was spent on each of the last complete days, in order; the newest last.
        spent: in the period so far.
        remaining: days until its end; what was not billed yet counts to them.

    Returns:
        None when there are too few days to say anything. Never less than what was spent: a refund is not
        expected to repeat.
    """
    with localcontext(Context(prec=40)):
        days = _whole_weeks(daily)
        if len(days) < FEWEST_DAYS:
            return None
        if remaining <= 0:
            return Forecast(to_places(spent), to_places(spent), to_places(spent), len(days))
        mean = sum(days, ZERO) / len(days)
        reach = Decimal(_T[len(days) - 2]) * _deviation(days, mean, remaining)
        rest = [max(ZERO, mean * remaining + away) for away in (ZERO, -reach, reach)]
        expected, low, high = (to_places(spent + each) for each in rest)
        return Forecast(expected, low, high, len(days))


def _whole_weeks(daily: Sequence[Decimal]) -> Sequence[Decimal]:
    """The last days; whole weeks if there is one, so that weekends count for what they are."""
    last = daily[-MOST_DAYS:]
    return last[len(last) % _WEEK :] if len(last) >= _WEEK else last


def _deviation(days: Sequence[Decimal], mean: Decimal, remaining: Decimal) -> Decimal:
    """The standard deviation of the sum of the remaining days."""
    away = [day - mean for day in days]
    squares = sum((each * each for each in away), ZERO)
    if squares == 0:
        return ZERO
    variance = squares / (len(days) - 1)
    like = sum((one * other for one, other in pairwise(away)), ZERO) / squares
    like += (1 + 3 * like) / len(days)
    like = min(max(like, ZERO), _MOST_LIKE)
    grown = variance * (1 + like) / (1 - like)
    return (grown * (remaining + remaining * remaining / len(days))).sqrt()

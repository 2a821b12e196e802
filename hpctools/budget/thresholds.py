"""Which alerts are due: pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from hpctools.budget.allowance import Period, Spec

Kind = Literal["spent", "forecast", "enforce"]


@dataclass(frozen=True)
class Due:
    """A threshold that was reached.

    Attributes:
        kind: by what was `spent`, by what is expected (`forecast`), or where the budget is enforced
            (`enforce`): its grace begins.
        threshold: percent of what may be spent.
        reached: the amount that reached it.
    """

    kind: Kind
    threshold: int
    reached: Decimal


@dataclass(frozen=True)
class Position:
    """How far an account is in a period.

    Attributes:
        allowed: all that may be spent.
        spent: billed, and what runs unbilled at its last rate.
        expected: at the period's end; None when nothing can be said.
    """

    period: Period
    allowed: Decimal
    spent: Decimal
    expected: Decimal | None


def due(spec: Spec, position: Position) -> Iterator[Due]:
    """Yield every threshold that is reached; who was told of one already is not known here."""
    for threshold in spec.alert_at:
        if reaches(position.spent, threshold, position.allowed):
            yield Due("spent", threshold, position.spent)
    expected = position.expected
    for threshold in spec.alert_on_forecast:
        if expected is not None and reaches(expected, threshold, position.allowed):
            yield Due("forecast", threshold, expected)
    rule = spec.enforcement
    if rule.policy != "off" and reaches(position.spent, rule.at, position.allowed):
        yield Due("enforce", rule.at, position.spent)


def reaches(amount: Decimal, threshold: int, allowed: Decimal) -> bool:
    """Whether an amount is a percentage of what is allowed, or more; nothing spent reaches nothing."""
    return amount > 0 and amount * 100 >= allowed * threshold

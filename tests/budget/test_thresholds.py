from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from hpctools.budget.allowance import Enforcement, Period, Spec
from hpctools.budget.thresholds import Due, Position, due

NOVEMBER = Period(date(2026, 11, 1), date(2026, 12, 1))
SPEC = Spec(Decimal(100), "USD", alert_at=(50, 90), alert_on_forecast=(100,))


def position(allowed: str, spent: str, expected: str | None = None) -> Position:
    return Position(NOVEMBER, Decimal(allowed), Decimal(spent), Decimal(expected) if expected else None)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (position("100", "49.999999"), []),
        (position("100", "50"), [("spent", 50)]),
        (position("100", "95", "99.99"), [("spent", 50), ("spent", 90)]),
        (position("100", "10", "100"), [("forecast", 100)]),
        (position("0", "0"), []),
        (position("0", "0.01", "0.01"), [("spent", 50), ("spent", 90), ("forecast", 100)]),
        (position("-5", "1"), [("spent", 50), ("spent", 90)]),
    ],
)
def test_what_is_reached(where: Position, expected: list[tuple[str, int]]) -> None:
    assert [(each.kind, each.threshold) for each in due(SPEC, where)] == expected


def test_it_says_what_reached_it() -> None:
    assert list(due(SPEC, position("100", "60.5"))) == [Due("spent", 50, Decimal("60.5"))]


def test_where_a_policy_begins_its_grace_does() -> None:
    spec = Spec(Decimal(100), "USD", enforcement=Enforcement("block", 80))
    assert [(each.kind, each.threshold) for each in due(spec, position("100", "80"))] == [("enforce", 80)]
    assert list(due(spec, position("100", "79.99"))) == []

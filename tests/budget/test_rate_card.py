from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from hpctools.budget.bill import BillRow
from hpctools.budget.month import Month, day_start
from hpctools.budget.rate_card import Price, rows

NOVEMBER = Month(2026, 11)
METRIC = "NetAmortizedCost"
OVER = day_start(date(2026, 12, 1))


def price(**changes: Any) -> Price:
    values: dict[str, Any] = {
        "node_group": "own",
        "nodes": 3,
        "gpus": 4,
        "currency": "EUR",
        "per_node_hour": Decimal("1.25"),
        "per_gpu_hour": Decimal("0.333333"),
        "since": date(2026, 1, 1),
    }
    return Price(**values | changes)


def test_a_day_of_always_on_nodes_is_two_rows_and_its_hours_count_once() -> None:
    made = [row for row in rows([price()], NOVEMBER, METRIC, OVER) if row.day == date(2026, 11, 7)]
    assert made == [
        BillRow(
            source="rate-card",
            day=date(2026, 11, 7),
            node_group="own",
            usage=usage,
            metric=METRIC,
            currency="EUR",
            amount=Decimal(amount),
            node_hours=Decimal(hours),
            service="own nodes",
            invoice="internal-2026-11",
        )
        # 3 nodes for 24 hours at 1.25, and their 12 GPUs for 24 hours at 0.333333.
        for usage, amount, hours in (("gpu-hours", "95.999904", 0), ("node-hours", "90", 72))
    ]


def test_hours_count_when_they_are_over_and_are_estimated_until_the_month_is() -> None:
    now = day_start(date(2026, 11, 2)) + 5 * 3600 + 3599
    made = rows([price(per_gpu_hour=Decimal(0))], NOVEMBER, METRIC, now)
    assert [(row.day.day, row.node_hours, row.amount, row.estimated, row.invoice) for row in made] == [
        (1, 72, 90, True, ""),
        (2, 15, Decimal("18.75"), True, ""),
    ]
    assert rows([price()], NOVEMBER, METRIC, day_start(NOVEMBER.start) + 3599) == ()


def test_a_price_holds_from_its_first_day_until_the_day_before_its_last() -> None:
    old = price(per_node_hour=Decimal(1), per_gpu_hour=Decimal(0), until=date(2026, 11, 15))
    new = price(per_node_hour=Decimal(2), per_gpu_hour=Decimal(0), since=date(2026, 11, 15))
    made = rows([new, old], NOVEMBER, METRIC, OVER)
    assert [row.amount for row in made] == [72] * 14 + [144] * 16
    assert {row.currency for row in made} == {"EUR"}


@pytest.mark.parametrize(
    ("change", "usage", "hours"),
    [
        ({"per_node_hour": Decimal(0)}, "gpu-hours", 72),
        ({"per_gpu_hour": Decimal(0)}, "node-hours", 72),
        ({"gpus": 0}, "node-hours", 72),
    ],
)
def test_what_costs_nothing_has_no_row_and_hours_are_never_lost(
    change: dict[str, Any], usage: str, hours: int
) -> None:
    made = rows([price(**change)], NOVEMBER, METRIC, OVER)
    assert {(row.usage, row.node_hours) for row in made} == {(usage, hours)}


def test_groups_without_always_on_nodes_cost_nothing() -> None:
    assert rows([price(nodes=0)], NOVEMBER, METRIC, OVER) == ()

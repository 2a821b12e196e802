from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.budget.bill import BillRow
from hpctools.budget.bill_table import frame_of, rows_of
from hpctools.budget.money import total
from hpctools.budget.placing import place, place_table
from hpctools.budget.tree import BudgetSite, NodeGroup

P4, P5 = "ml.p4d.24xlarge", "ml.p5.48xlarge"
DAY = date(2026, 11, 10)
SITE = BudgetSite(
    "uni",
    (),
    (
        NodeGroup("reserved", nodes=("r-1", "r-2"), always_on=2, instance_type=P4, capacity="reserved"),
        NodeGroup("spot", nodes=tuple("abcdef"), instance_type=P4, capacity="spot"),
        NodeGroup("big", nodes=("b-1",), always_on=1, instance_type=P5),
        NodeGroup("own", nodes=("o-1",), always_on=1),
    ),
)


def row(amount: str = "100", hours: str = "48", kind: str = P4, **changes: Any) -> BillRow:
    values: dict[str, Any] = {
        "source": "aws-cur",
        "day": DAY,
        "node_group": "",
        "usage": f"USE1-Cluster:{kind}",
        "metric": "NetAmortizedCost",
        "currency": "USD",
        "amount": Decimal(amount),
        "node_hours": Decimal(hours),
        "cluster": "uni",
    }
    return BillRow(**values | changes)


def parts(*rows: BillRow) -> list[tuple[str, Decimal, Decimal]]:
    return [(each.node_group, each.amount, each.node_hours) for each in place(rows, SITE)]


def test_the_only_group_of_a_type_has_its_cost() -> None:
    assert parts(row("7.5", "24", P5)) == [("big", Decimal("7.5"), 24)]


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        # Two always-on nodes for a day, and nothing beyond.
        ("48", [("reserved", Decimal(100), 48)]),
        # 48 hours of always-on nodes and 48 of those that came for jobs.
        ("96", [("reserved", Decimal(50), 48), ("spot", Decimal(50), 48)]),
        # A day in progress, or nodes that were away: the always-on ones first.
        ("20", [("reserved", Decimal(100), 20)]),
    ],
)
def test_several_groups_of_a_type_share_by_their_hours(hours: str, expected: list[Any]) -> None:
    assert parts(row("100", hours)) == expected


def test_where_the_bill_says_spot_it_is_the_spot_groups() -> None:
    assert parts(row("9", "96", capacity="spot")) == [("spot", 9, 96)]


def test_hours_that_are_called_spot_take_nothing_of_the_others() -> None:
    """Two reserved nodes for a day, and as many hours of spot nodes: each group has its own line."""
    always, spot = row("480", "48", capacity="on-demand"), row("100", "48", capacity="spot")
    assert parts(always, spot) == [("reserved", 480, 48), ("spot", 100, 48)]


def test_lines_of_a_type_and_day_are_measured_together() -> None:
    halves = parts(row("50", "48", resource="x"), row("50", "48", resource="y"))
    assert halves == [("reserved", 25, 24), ("spot", 25, 24)] * 2


@pytest.mark.parametrize(
    "other",
    [
        row(cluster="another"),
        row(cluster=""),
        row(node_group="login"),
        row(kind="ml.g5.12xlarge"),
        row(usage="USE1-Cluster:VolumeUsage.gp3"),
        row(usage="USE1-BoxUsage:p4d.24xlarge"),
    ],
)
def test_what_is_not_this_clusters_or_has_a_group_stays_as_it_is(other: BillRow) -> None:
    assert place([other], SITE) == [other]


ROWS = st.lists(
    st.builds(
        row,
        st.decimals("-1e6", "1e6", places=10).map(str),
        st.decimals("0", "1e4", places=6).map(str),
        st.sampled_from([P4, P5, "ml.other.large", "VolumeUsage.gp3"]),
        day=st.dates(date(2026, 11, 1), date(2026, 11, 4)),
        node_group=st.sampled_from(["", "", "big"]),
        cluster=st.sampled_from(["uni", "uni", "other", ""]),
        capacity=st.sampled_from(["", "spot", "on-demand"]),
        currency=st.sampled_from(["USD", "EUR"]),
    ),
    max_size=30,
)


def sums(rows: list[BillRow]) -> dict[tuple[Any, ...], tuple[Decimal, Decimal]]:
    keys = {(each.day, each.usage, each.currency) for each in rows}
    return {
        key: (
            total(each.amount for each in rows if (each.day, each.usage, each.currency) == key),
            total(each.node_hours for each in rows if (each.day, each.usage, each.currency) == key),
        )
        for key in keys
    }


@settings(max_examples=100, deadline=None)
@given(ROWS)
def test_nothing_is_added_or_lost(rows: list[BillRow]) -> None:
    placed = place(rows, SITE)
    nothing = (Decimal(0), Decimal(0))
    before, after = sums(rows), sums(placed)
    assert {key: after.get(key, nothing) for key in before} == before
    assert sorted(place(rows[::-1], SITE)) == sorted(placed)
    assert place(placed, SITE) == placed


def test_columns_are_placed_like_rows() -> None:
    rows = [row("100", "96"), row("1", "1", P5), row(node_group="big"), row(cluster="", amount="3")]
    assert sorted(rows_of(place_table(frame_of(rows), SITE))) == sorted(place(rows, SITE))
    untouched = frame_of([replace(rows[0], cluster="other")])
    assert place_table(untouched, SITE) is untouched

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from hpctools.budget import focus
from hpctools.budget.bill import BillRow
from hpctools.budget.bill_table import rows_of
from hpctools.budget.month import Month, day_start
from hpctools.budget.normalise import Wanted, add_up, finish
from hpctools.errors import BudgetError
from tests.budget.exports_lines import CLUSTER_TAG, TAG, as_parquet, focus_line, frame

NOVEMBER = Month(2026, 11)
NOW = day_start(date(2026, 11, 21))


def rows(table: pl.DataFrame, metric: str = "NetAmortizedCost", now: int = NOW) -> list[BillRow]:
    asked = Wanted(focus.SOURCE, metric, NOVEMBER, TAG, CLUSTER_TAG)
    invoices = "InvoiceId" in table.columns
    return rows_of(finish(add_up(focus.lines(table, asked, "f.csv"), "f.csv"), asked, now, invoices))


def test_a_line_says_all_that_there_is_to_say() -> None:
    assert rows(frame(focus_line({"user:hpctools:node-group": "big", "ClusterName": "uni"}))) == [
        BillRow(
            source="focus",
            day=date(2026, 11, 3),
            node_group="big",
            usage="USE1-BoxUsage:p4d.24xlarge",
            metric="NetAmortizedCost",
            currency="USD",
            amount=Decimal("30.1"),
            node_hours=Decimal(1),
            estimated=True,
            service="Amazon Elastic Compute Cloud",
            charge="usage",
            resource="i-0abc",
            capacity="on-demand",
            billing_account="123456789012",
            invoice="",
            cluster="uni",
        )
    ]


@pytest.mark.parametrize(
    ("metric", "amount"),
    [
        ("NetAmortizedCost", "30.1"),
        ("AmortizedCost", "30.1"),
        ("NetUnblendedCost", "37.688"),
        ("UnblendedCost", "37.688"),
    ],
)
def test_effective_and_billed_cost_are_never_mixed(metric: str, amount: str) -> None:
    assert [row.amount for row in rows(frame(focus_line()), metric)] == [Decimal(amount)]


def test_blended_cost_is_refused() -> None:
    with pytest.raises(BudgetError, match="FOCUS has no BlendedCost; use one of NetAmortizedCost"):
        rows(frame(focus_line()), "BlendedCost")


@pytest.mark.parametrize(
    ("changes", "charge", "capacity"),
    [
        ({}, "usage", "on-demand"),
        ({"PricingCategory": "Dynamic"}, "usage", "spot"),
        ({"PricingCategory": "Committed", "CommitmentDiscountStatus": "Used"}, "usage", "reserved"),
        ({"CommitmentDiscountStatus": "Unused", "CommitmentDiscountId": "sp"}, "commitment", ""),
        ({"ChargeCategory": "Purchase", "CommitmentDiscountId": "sp"}, "commitment", ""),
        ({"ChargeCategory": "Purchase"}, "fee", ""),
        ({"ChargeCategory": "Tax"}, "tax", ""),
        ({"ChargeCategory": "Credit"}, "credit", ""),
        ({"ChargeCategory": "Credit", "ChargeClass": "Correction"}, "credit", ""),
        ({"ChargeCategory": "Adjustment"}, "adjustment", ""),
        ({"ChargeClass": "Correction"}, "adjustment", ""),
    ],
)
def test_each_kind_of_money_is_told_apart(changes: dict[str, str], charge: str, capacity: str) -> None:
    (row,) = rows(frame(focus_line(**changes)))
    assert (row.charge, row.capacity, row.amount) == (charge, capacity, Decimal("30.1"))
    assert row.node_hours == (1 if charge == "usage" else 0)


def test_a_correction_of_an_invoiced_month_counts_where_it_is_billed() -> None:
    late = focus_line(ChargeClass="Correction", ChargePeriodStart="2026-08-12T00:00:00Z", EffectiveCost="-4")
    assert [(row.day, row.charge, row.amount) for row in rows(frame(late))] == [
        (date(2026, 11, 1), "adjustment", Decimal(-4))
    ]


@pytest.mark.parametrize(
    ("changes", "hours"),
    [
        ({}, 1),
        ({"x_UsageType": ""}, 1),
        ({"x_UsageType": "", "ServiceCategory": "Storage"}, 0),
        ({"x_UsageType": "USE1-EBS:VolumeUsage.gp3"}, 0),
        ({"ConsumedUnit": "GB"}, 0),
    ],
)
def test_hours_of_nodes(changes: dict[str, str], hours: int) -> None:
    assert [row.node_hours for row in rows(frame(focus_line(**changes)))] == [hours]


@pytest.mark.parametrize(
    ("names", "usage"),
    [
        ({"x_UsageType": "", "SkuMeter": "Compute"}, "Compute"),
        ({"x_UsageType": "", "SkuMeter": ""}, "SKU1"),
        ({"x_UsageType": "", "SkuId": ""}, "Usage"),
    ],
)
def test_what_was_used_has_the_finest_name_that_there_is(names: dict[str, str], usage: str) -> None:
    assert [row.usage for row in rows(frame(focus_line(**names)))] == [usage]


def test_a_release_without_invoices_is_final_two_weeks_after_the_month() -> None:
    table = frame(focus_line()).drop("InvoiceId")
    assert [row.estimated for row in rows(table)] == [True]
    assert [row.estimated for row in rows(table, now=day_start(date(2026, 12, 15)))] == [True]
    assert [row.estimated for row in rows(table, now=day_start(date(2026, 12, 16)))] == [False]


def test_parquet_and_csv_are_the_same_bill(tmp_path: Path) -> None:
    lines = [
        focus_line({"hpctools:node-group": "big"}),
        focus_line({}, ChargeCategory="Credit", EffectiveCost="-0.1"),
    ]
    parquet = pl.read_parquet(as_parquet(lines, tmp_path / "x.parquet"))
    assert rows(parquet) == rows(frame(*lines))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"EffectiveCost": ""}, "None is not a cost"),
        ({"EffectiveCost": "NaN"}, "'NaN' is not a cost"),
        ({"BillingCurrency": "US$"}, "'US\\$' is not a currency"),
        ({"ChargeCategory": "Gift"}, "'Gift' is not a ChargeCategory"),
        ({"BillingPeriodStart": "2026-12-01"}, "billing period 2026-12-01"),
    ],
)
def test_what_cannot_be_a_bill_is_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(BudgetError, match=message):
        rows(frame(focus_line(), focus_line(**change)))


@pytest.mark.parametrize("column", [*focus.REQUIRED, "EffectiveCost"])
def test_missing_columns_are_named(column: str) -> None:
    with pytest.raises(BudgetError, match=f"no FOCUS export: the columns {column} are missing"):
        rows(frame(focus_line()).drop(column))


def test_the_exact_spelling_of_a_tag_comes_first() -> None:
    line = focus_line({"user_hpctools_node_group": "other", "hpctools:node-group": "big", "x": "y"})
    assert [row.node_group for row in rows(frame(line))] == ["big"]
    assert [row.node_group for row in rows(frame(focus_line({"node-group": "big"})))] == [""]

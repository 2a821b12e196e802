from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.budget import cur
from hpctools.budget.bill import BillRow
from hpctools.budget.bill_table import rows_of, totals
from hpctools.budget.month import Month, day_start
from hpctools.budget.normalise import Wanted, add_up, finish, merge
from hpctools.errors import BudgetError
from tests.budget.exports_lines import CLUSTER_TAG, TAG, as_parquet, cur_line, frame

NOVEMBER = Month(2026, 11)
NOW = day_start(date(2026, 11, 21))


def wanted(metric: str = "NetAmortizedCost", **changes: Any) -> Wanted:
    values: dict[str, Any] = {
        "source": cur.SOURCE,
        "metric": metric,
        "month": NOVEMBER,
        "node_group_tag": TAG,
        "cluster_tag": CLUSTER_TAG,
    }
    return Wanted(**values | changes)


def rows(
    *lines: dict[str, Any] | pl.DataFrame, metric: str = "NetAmortizedCost", now: int = NOW
) -> list[BillRow]:
    tables = [line if isinstance(line, pl.DataFrame) else frame(line) for line in lines]
    asked = wanted(metric)
    parts = [add_up(cur.lines(table, asked, "f.csv"), "f.csv") for table in tables]
    return rows_of(finish(merge(parts), asked, now))


def test_a_line_of_usage_says_all_that_there_is_to_say() -> None:
    tags = {"user_hpctools_node_group": "big", "user_cluster_name": "uni", "aws_created_by": "x"}
    assert rows(cur_line(tags), cur_line(tags, line_item_usage_amount="0.5")) == [
        BillRow(
            source="aws-cur",
            day=date(2026, 11, 3),
            node_group="big",
            usage="USE1-Cluster:ml.p4d.24xlarge",
            metric="NetAmortizedCost",
            currency="USD",
            amount=Decimal("75.376"),
            node_hours=Decimal("1.5"),
            estimated=True,
            service="AmazonSageMaker",
            charge="usage",
            resource="arn:aws:sagemaker:us-east-1:123456789012:cluster/abc",
            capacity="on-demand",
            billing_account="123456789012",
            invoice="",
            cluster="uni",
        )
    ]


COVERED = cur_line(
    line_item_line_item_type="SavingsPlanCoveredUsage",
    line_item_unblended_cost="37.688",
    savings_plan_savings_plan_effective_cost="24.5",
    savings_plan_net_savings_plan_effective_cost="24.0",
    line_item_net_unblended_cost="36.0",
)
NEGATION = cur_line(
    line_item_line_item_type="SavingsPlanNegation",
    line_item_unblended_cost="-37.688",
    line_item_net_unblended_cost="-36.0",
    savings_plan_net_savings_plan_effective_cost=None,
)
PLAN_FEE = cur_line(
    line_item_line_item_type="SavingsPlanRecurringFee",
    line_item_unblended_cost="30",
    line_item_net_unblended_cost="29.4",
    savings_plan_total_commitment_to_date="30.0",
    savings_plan_used_commitment="24.5",
    savings_plan_net_savings_plan_effective_cost=None,
)


@pytest.mark.parametrize(
    ("metric", "usage", "commitment"),
    [
        # Cash: the usage at its price, taken off again, and the fee.
        ("UnblendedCost", "37.688", "-7.688"),
        ("NetUnblendedCost", "36", "-6.6"),
        # Spread: what usage had of the plan, and what nothing used (30 - 24.5) does not vanish.
        ("AmortizedCost", "24.5", "5.5"),
        ("NetAmortizedCost", "24", "5.5"),
    ],
)
def test_a_savings_plan(metric: str, usage: str, commitment: str) -> None:
    by_charge = {"usage": Decimal(0), "commitment": Decimal(0)}
    for row in rows(frame(COVERED, NEGATION, PLAN_FEE), metric=metric):
        by_charge[row.charge] += row.amount
        assert row.capacity == ("reserved" if row.charge == "usage" else "")
    assert by_charge == {"usage": Decimal(usage), "commitment": Decimal(commitment)}


def test_a_reservation_paid_up_front_is_spread_and_its_rest_does_not_vanish() -> None:
    reservation = {"reservation_reservation_a_r_n": "arn:aws:ec2:x"}
    lines = frame(
        cur_line(line_item_line_item_type="Fee", line_item_unblended_cost="8760", **reservation),
        cur_line(
            line_item_line_item_type="DiscountedUsage",
            line_item_unblended_cost="0",
            reservation_effective_cost="1.1",
            **reservation,
        ),
        cur_line(
            line_item_line_item_type="RIFee",
            line_item_unblended_cost="10",
            reservation_unused_amortized_upfront_fee_for_billing_period="0.2",
            reservation_unused_recurring_fee="0.05",
            **reservation,
        ),
    )
    spread = {row.charge: row.amount for row in rows(lines)}
    assert spread == {"usage": Decimal("1.1"), "commitment": Decimal("0.25")}
    cash = {row.charge: row.amount for row in rows(lines, metric="UnblendedCost") if row.amount}
    assert cash == {"commitment": Decimal(8770)}


@pytest.mark.parametrize(
    ("kind", "charge"),
    [
        ("Credit", "credit"),
        ("Refund", "refund"),
        ("Tax", "tax"),
        ("Fee", "fee"),
        ("EdpDiscount", "credit"),
        ("SomethingNew", "adjustment"),
    ],
)
def test_each_kind_of_money_stays_and_is_told_apart(kind: str, charge: str) -> None:
    line = cur_line(
        line_item_line_item_type=kind,
        line_item_usage_type="",
        line_item_unblended_cost="-1.25",
        line_item_usage_amount="730",
    )
    (row,) = rows(line)
    assert (row.charge, row.amount, row.usage, row.node_hours) == (charge, Decimal("-1.25"), kind, 0)


def test_only_one_measure_is_read_and_quantities_are_no_money() -> None:
    """A system that added unblended, blended and the quantity once made 224 out of 100 dollars."""
    line = cur_line(line_item_unblended_cost="100", line_item_blended_cost="100", line_item_usage_amount="24")
    for metric in ("UnblendedCost", "AmortizedCost", "NetUnblendedCost", "NetAmortizedCost", "BlendedCost"):
        (row,) = rows(line, metric=metric)
        assert (row.amount, row.node_hours, row.metric) == (100, 24, metric)


def test_currencies_are_kept_apart() -> None:
    euros = cur_line(line_item_currency_code="EUR", line_item_unblended_cost="2")
    asked = wanted()
    table = finish(add_up(cur.lines(frame(cur_line(), euros), asked, "f"), "f"), asked, NOW)
    assert totals(table) == {"EUR": Decimal(2), "USD": Decimal("37.688")}


def test_split_cost_allocation_is_no_cost() -> None:
    split = cur_line(
        split_line_item_parent_resource_id="i-1",
        line_item_unblended_cost="",
        split_line_item_split_cost="9",
    )
    assert [row.amount for row in rows(frame(cur_line() | {"split_line_item_split_cost": ""}, split))] == [
        Decimal("37.688")
    ]


@pytest.mark.parametrize(
    ("usage", "unit", "hours", "capacity"),
    [
        ("USE1-Cluster:ml.g5.12xlarge", "Hrs", 5, "on-demand"),
        ("EUC1-SpotUsage:p4d.24xlarge", "Hours", 5, "spot"),
        ("USE1-Cluster:VolumeUsage.gp3", "GB-Mo", 0, ""),
        ("USE1-Cluster:ml.g5.12xlarge", "GB-Mo", 0, "on-demand"),
        ("USE1-DataTransfer-Out-Bytes", "Hrs", 0, ""),
    ],
)
def test_hours_of_nodes(usage: str, unit: str, hours: int, capacity: str) -> None:
    line = cur_line(line_item_usage_type=usage, pricing_unit=unit, line_item_usage_amount="5")
    (row,) = rows(line)
    assert (row.node_hours, row.capacity) == (hours, capacity)


def test_money_of_another_time_counts_in_the_month_that_it_is_billed_in() -> None:
    refund = cur_line(
        line_item_line_item_type="Refund", line_item_usage_start_date="2026-08-17T00:00:00.000Z"
    )
    later = cur_line(line_item_usage_start_date="2026-12-01T00:00:00.000Z")
    assert [(row.charge, row.day.day) for row in rows(frame(refund, later))] == [("refund", 1), ("usage", 30)]


def test_estimated_until_usage_is_invoiced() -> None:
    open_, issued = (
        cur_line(),
        cur_line(bill_invoice_id="EUINV-1", line_item_usage_start_date="2026-11-04 00:00"),
    )
    purchase = cur_line(bill_invoice_id="P-1", line_item_line_item_type="Fee", bill_bill_type="Purchase")
    assert {(row.charge, row.estimated) for row in rows(frame(open_, purchase))} == {
        ("usage", True),
        ("fee", False),
    }
    assert {row.estimated for row in rows(frame(open_, issued))} == {False}
    assert [row.estimated for row in rows(open_, now=day_start(date(2027, 2, 1)))] == [False]


LINES = st.fixed_dictionaries(
    {
        "line_item_line_item_type": st.sampled_from(
            [
                "Usage",
                "SavingsPlanCoveredUsage",
                "SavingsPlanNegation",
                "SavingsPlanRecurringFee",
                "SavingsPlanUpfrontFee",
                "DiscountedUsage",
                "RIFee",
                "Fee",
                "Tax",
                "Credit",
                "Refund",
                "EdpDiscount",
            ]
        ),
        "line_item_usage_start_date": st.sampled_from(
            [f"2026-11-{n:02d}T00:00:00.000Z" for n in range(1, 31)]
        ),
        "line_item_usage_type": st.sampled_from(["", "USE1-Cluster:ml.p4d.24xlarge", "x"]),
        "line_item_currency_code": st.sampled_from(["USD", "USD", "EUR"]),
        "reservation_reservation_a_r_n": st.sampled_from(["", "arn"]),
        "group": st.sampled_from(["", "big", "small"]),
        **{
            name: st.one_of(
                st.decimals("-1e6", "1e6", places=10).map(str),
                st.floats(-1e6, 1e6).map(repr),
                st.sampled_from(["0", "-0.0", "1E-10", "8.0E-7", "12."]),
            )
            for name in (
                "line_item_unblended_cost",
                "reservation_effective_cost",
                "reservation_unused_amortized_upfront_fee_for_billing_period",
                "reservation_unused_recurring_fee",
                "savings_plan_savings_plan_effective_cost",
                "savings_plan_total_commitment_to_date",
                "savings_plan_used_commitment",
            )
        },
    }
)


def cost(line: dict[str, Any], metric: str) -> Decimal:
    """A line's cost by AWS's definition, in Python."""

    def of(name: str) -> Decimal:
        return Decimal(line[name]).quantize(Decimal("1e-20"))

    kind = line["line_item_line_item_type"]
    if metric == "UnblendedCost" or kind in ("Usage", "Tax", "Credit", "Refund", "EdpDiscount"):
        return of("line_item_unblended_cost")
    if kind == "Fee":
        return Decimal(0) if line["reservation_reservation_a_r_n"] else of("line_item_unblended_cost")
    unused = "reservation_unused_amortized_upfront_fee_for_billing_period"
    return {
        "SavingsPlanCoveredUsage": of("savings_plan_savings_plan_effective_cost"),
        "SavingsPlanRecurringFee": of("savings_plan_total_commitment_to_date")
        - of("savings_plan_used_commitment"),
        "DiscountedUsage": of("reservation_effective_cost"),
        "RIFee": of(unused) + of("reservation_unused_recurring_fee"),
    }.get(kind, Decimal(0))


FILES = st.lists(st.lists(LINES, max_size=12), min_size=1, max_size=3)


@settings(max_examples=20, deadline=None)
@given(FILES, st.sampled_from(["AmortizedCost", "UnblendedCost"]))
def test_rows_add_up_to_the_lines_exactly_whatever_the_files(
    files: list[list[dict[str, Any]]], metric: str
) -> None:
    add_up_exactly(files, metric)


@pytest.mark.long
@pytest.mark.timeout(1200)
@settings(max_examples=2000, deadline=None)
@given(FILES, st.sampled_from(["AmortizedCost", "UnblendedCost"]))
def test_rows_add_up_for_thousands_of_files(files: list[list[dict[str, Any]]], metric: str) -> None:
    add_up_exactly(files, metric)


def add_up_exactly(files: list[list[dict[str, Any]]], metric: str) -> None:
    expected: dict[str, Decimal] = {}
    tables = []
    for lines in files:
        whole = [cur_line({"user_hpctools_node_group": line["group"]}, **line) for line in lines]
        tables.append(frame(*whole) if whole else frame(cur_line()).clear())
        for line in whole:
            code = line["line_item_currency_code"]
            expected[code] = expected.get(code, Decimal(0)) + cost(line, metric)
    made = rows(*tables, metric=metric)
    found: dict[str, Decimal] = {}
    for row in made:
        found[row.currency] = found.get(row.currency, Decimal(0)) + row.amount
    assert {code: amount for code, amount in found.items() if amount} == {
        code: amount for code, amount in expected.items() if amount
    }
    assert made == rows(*reversed(tables), metric=metric)


def test_parquet_and_csv_are_the_same_bill(tmp_path: Path) -> None:
    lines = [
        cur_line({"user:hpctools:node-group": "big"}, line_item_unblended_cost="0.0101516483"),
        cur_line({"user_hpctools_node_group": "big", "other": "x"}, line_item_unblended_cost="1E-10"),
        cur_line({}, line_item_line_item_type="Credit", line_item_unblended_cost="-3.1"),
    ]
    parquet = pl.read_parquet(as_parquet(lines, tmp_path / "x.parquet"))
    assert rows(parquet) == rows(frame(*lines))
    assert [row.amount for row in rows(parquet)] == [Decimal("-3.1"), Decimal("0.0101516484")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"line_item_unblended_cost": "NaN"}, "'NaN' is not a cost"),
        ({"line_item_unblended_cost": "inf"}, "'inf' is not a cost"),
        ({"line_item_unblended_cost": "1e400"}, "'1e400' is not a cost"),
        ({"line_item_unblended_cost": "1" * 5000}, "is not a cost"),
        ({"line_item_unblended_cost": "1_000"}, "'1_000' is not a cost"),
        ({"line_item_unblended_cost": "٣"}, "is not a cost"),
        ({"line_item_unblended_cost": "$5"}, "'\\$5' is not a cost"),
        ({"line_item_unblended_cost": "5,00"}, "'5,00' is not a cost"),
        ({"line_item_unblended_cost": "=1+1"}, "'=1\\+1' is not a cost"),
        ({"line_item_unblended_cost": ""}, "has no NetAmortizedCost"),
        ({"line_item_usage_amount": "many"}, "'many' is not a quantity"),
        ({"line_item_currency_code": "€"}, "'€' is not a currency"),
        ({"line_item_currency_code": ""}, "'' is not a currency"),
        ({"line_item_currency_code": "usd"}, "'usd' is not a currency"),
        ({"line_item_usage_start_date": "yesterday"}, "'yesterday' is not a day"),
        ({"line_item_usage_start_date": "2026-11-31"}, "'2026-11-31' is not a day"),
        ({"bill_billing_period_start_date": "2026-10-01"}, "billing period 2026-10-01; expected 2026-11"),
        ({"line_item_resource_id": "a\0b"}, "is not a resource"),
        ({"line_item_resource_id": "x" * 2000}, "is not a resource"),
        ({"resource_tags": "[1]"}, "is not a set of tags"),
        ({"resource_tags": "{" * 100_000}, "is not a set of tags"),
    ],
)
def test_what_cannot_be_a_bill_is_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(BudgetError, match=f"^f.csv: .*{message}") as caught:
        rows(frame(cur_line(), cur_line(**change)))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("column", [*cur.REQUIRED, "resource_tags"])
def test_missing_columns_are_named(column: str) -> None:
    with pytest.raises(BudgetError, match=f"the columns {column} are missing"):
        rows(frame(cur_line()).drop(column))


def test_columns_of_commitments_are_needed_only_where_there_are_commitments() -> None:
    bare = [name for name in cur_line() if not name.startswith(("savings_plan", "reservation", "split"))]
    assert [row.amount for row in rows(frame(cur_line()).select(bare))] == [Decimal("37.688")]
    with pytest.raises(BudgetError, match="a commitment's fee has no savings_plan_total_commitment_to_date"):
        rows(frame(PLAN_FEE).select(bare))
    with pytest.raises(BudgetError, match="'SavingsPlanCoveredUsage' has no NetAmortizedCost"):
        rows(frame(COVERED).select(bare))


def test_another_payers_bill_is_refused() -> None:
    asked = wanted(billing_account="999999999999")
    with pytest.raises(BudgetError, match="billing account '123456789012', expected 999999999999 only"):
        finish(add_up(cur.lines(frame(cur_line()), asked, "f"), "f"), asked, NOW)


def test_more_money_than_there_is_cannot_overflow() -> None:
    lines = frame(*(cur_line(line_item_unblended_cost="999999999999999") for _ in range(30)))
    with pytest.raises(BudgetError, match="add up to more than 10\\^16"):
        rows(lines)

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from botocore.session import Session
from botocore.validate import ParamValidator

from hpctools.budget.bill import BillRow
from hpctools.budget.burn import rates
from hpctools.budget.cost_explorer import REQUESTED, ClusterTag, parse, request
from hpctools.budget.month import Month
from hpctools.errors import BudgetError

TAG = "hpctools:node-group"
METRIC = "NetAmortizedCost"


def group(
    tag: str, usage: str, amount: str, quantity: str = "0", unit: str = "N/A", code: str = "USD"
) -> Any:
    return {
        "Keys": [tag, usage],
        "Metrics": {
            METRIC: {"Amount": amount, "Unit": code},
            "UsageQuantity": {"Amount": quantity, "Unit": unit},
        },
    }


def page(*groups: Any, day: str = "2026-11-01", estimated: bool = False, total: Any = None) -> Any:
    period = {"Start": day, "End": "ignored"}
    result = {"TimePeriod": period, "Total": total or {}, "Groups": list(groups), "Estimated": estimated}
    return {"ResultsByTime": [result]}


def test_the_request_for_a_month_is_the_documented_one() -> None:
    assert request(Month(2026, 11), METRIC, TAG) == {
        "TimePeriod": {"Start": "2026-11-01", "End": "2026-12-01"},
        "Granularity": "DAILY",
        "Metrics": [METRIC, "UsageQuantity"],
        "GroupBy": [{"Type": "TAG", "Key": TAG}, {"Type": "DIMENSION", "Key": "USAGE_TYPE"}],
    }
    scoped = request(Month(2026, 11), METRIC, TAG, ClusterTag("ClusterName", "uni"), "next")
    assert scoped["Filter"] == {"Tags": {"Key": "ClusterName", "Values": ["uni"]}}
    assert scoped["NextPageToken"] == "next"


def test_requests_by_charge_are_the_whole_bill_in_parts() -> None:
    """Usage has all that is in no other part: nothing is asked for twice, nothing is left out."""
    filters = {charge: request(Month(2026, 11), METRIC, TAG, charge=charge)["Filter"] for charge in REQUESTED}
    parts = [filters[charge]["Dimensions"]["Values"] for charge in REQUESTED if charge != "usage"]
    others = [name for names in parts for name in names]
    assert filters["credit"] == {"Dimensions": {"Key": "RECORD_TYPE", "Values": ["Credit"]}}
    assert filters["usage"] == {"Not": {"Dimensions": {"Key": "RECORD_TYPE", "Values": others}}}
    assert len(set(others)) == len(others)
    of_cluster = request(Month(2026, 11), METRIC, TAG, ClusterTag("ClusterName", "uni"), charge="tax")
    assert of_cluster["Filter"] == {
        "And": [{"Tags": {"Key": "ClusterName", "Values": ["uni"]}}, filters["tax"]]
    }


def test_requests_are_what_the_api_takes() -> None:
    model = Session().get_service_model("ce").operation_model("GetCostAndUsage").input_shape
    for charge in (None, *REQUESTED):
        for cluster in (None, ClusterTag("ClusterName", "uni")):
            asked = request(Month(2026, 11), METRIC, TAG, cluster, "page", charge)
            assert ParamValidator().validate(asked, model).generate_report() == ""


def test_rows_tell_what_was_asked_for() -> None:
    (row,) = parse([page(group(f"{TAG}$", "x", "-2"))], METRIC, TAG, "credit", "uni")
    assert (row.charge, row.cluster) == ("credit", "uni")


def test_an_answer_becomes_rows_and_only_the_asked_metric_is_read() -> None:
    node = group(f"{TAG}$big", "USE1-Cluster:ml.p4d.24xlarge", "100.25", "24", "Hrs")
    # A system that added all metrics up once made 224 out of 100 dollars.
    node["Metrics"] |= {"BlendedCost": {"Amount": "99", "Unit": "USD"}}
    answer = page(node, group(f"{TAG}$", "Dollar", "-3.5"), estimated=True, total={METRIC: {"Amount": "7"}})

    assert parse([answer], METRIC, TAG) == (
        BillRow("aws-ce", date(2026, 11, 1), "", "Dollar", METRIC, "USD", Decimal("-3.5"), Decimal(0), True),
        BillRow(
            source="aws-ce",
            day=date(2026, 11, 1),
            node_group="big",
            usage="USE1-Cluster:ml.p4d.24xlarge",
            metric=METRIC,
            currency="USD",
            amount=Decimal("100.25"),
            node_hours=Decimal(24),
            estimated=True,
        ),
    )


def test_a_tag_value_may_contain_a_dollar() -> None:
    assert parse([page(group(f"{TAG}$a$b", "x", "1"))], METRIC, TAG)[0].node_group == "a$b"


@pytest.mark.parametrize(
    ("usage", "unit", "hours"),
    [
        ("USE1-Cluster:ml.g5.12xlarge", "Hrs", 5),
        ("EUC1-BoxUsage:p4d.24xlarge", "Hours", 5),
        ("SpotUsage:p4d.24xlarge", "hrs", 5),
        ("USE1-Cluster:VolumeUsage.gp3", "Hrs", 0),
        ("USE1-Cluster:ml.g5.12xlarge", "GB-Mo", 0),
        ("USE1-DataTransfer", "Hrs", 0),
    ],
)
def test_only_running_nodes_hours_are_node_hours(usage: str, unit: str, hours: int) -> None:
    assert parse([page(group(f"{TAG}$big", usage, "1", "5", unit))], METRIC, TAG)[0].node_hours == hours


def test_a_day_that_is_spread_over_pages_is_one_row() -> None:
    first = page(group(f"{TAG}$big", "x", "1.1"))
    second = page(group(f"{TAG}$big", "x", "2.2"), estimated=True)
    (row,) = parse([first, second], METRIC, TAG)
    assert (row.amount, row.estimated) == (Decimal("3.3"), True)


def test_currencies_are_kept_apart() -> None:
    answer = page(group(f"{TAG}$big", "x", "1"), group(f"{TAG}$big", "x", "2", code="EUR"))
    assert [(row.currency, row.amount) for row in parse([answer], METRIC, TAG)] == [("EUR", 2), ("USD", 1)]


def test_nothing_has_no_currency_and_is_left_out() -> None:
    assert parse([page(group(f"{TAG}$", "x", "0", code="N/A"))], METRIC, TAG) == ()


def test_hours_that_credits_pay_in_full_have_a_currency_and_count_in_the_rate() -> None:
    """24 hours for 10 dollars and 24 for nothing: an hour of the group cost 10/48."""
    paid = group(f"{TAG}$gpu", "SpotUsage:p4d.24xlarge", "10", "24", "Hrs")
    free = group(f"{TAG}$gpu", "BoxUsage:p4d.24xlarge", "0", "24", "Hrs")
    rows = parse([page(paid, free)], METRIC, TAG)
    assert {row.currency for row in rows} == {"USD"}
    assert rates(rows, "USD")["gpu"].per_node_hour == Decimal("0.208333")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"ResultsByTime": [{}]},
        {"ResultsByTime": None},
        page({"Keys": ["one"], "Metrics": {}}),
        page({"Keys": ["a", "b"], "Metrics": {"UnblendedCost": {"Amount": "1", "Unit": "USD"}}}),
        page(group("a", "b", "1"), day="yesterday"),
    ],
)
def test_another_form_is_an_error_that_says_so(answer: Any) -> None:
    with pytest.raises(BudgetError, match="documented form"):
        parse([answer], METRIC, TAG)


def test_money_without_a_currency_is_refused() -> None:
    with pytest.raises(BudgetError, match="'N/A' is not a currency"):
        parse([page(group(f"{TAG}$", "x", "1", code="N/A"))], METRIC, TAG)

"""AWS Cost Explorer: the request that we make, and bill rows out of its answer. Pure.

Source: Cost Explorer API reference, GetCostAndUsage. The request for a month is always the same, byte by
byte, whatever the day: a repeated pull differs in the answer only. An end in the future is allowed up to the
first day of the next month (github.com/aws/aws-sdk-js/issues/2732).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any

from hpctools.budget.bill import BillRow, Charge
from hpctools.budget.money import ZERO, parse_amount, parse_currency, total
from hpctools.budget.month import Month
from hpctools.errors import BudgetError

SOURCE = "aws-ce"
QUANTITY = "UsageQuantity"
METRICS = ("NetAmortizedCost", "AmortizedCost", "NetUnblendedCost", "UnblendedCost", "BlendedCost")

# Cost Explorer's dimension RECORD_TYPE, "charge type" in its pages.
_RECORD_TYPES: dict[Charge, tuple[str, ...]] = {
    "credit": ("Credit",),
    "refund": ("Refund",),
    "tax": ("Tax",),
    "fee": ("Support", "Upfront"),
    "commitment": (
        "Recurring",
        "RIFee",
        "SavingsPlanNegation",
        "SavingsPlanRecurringFee",
        "SavingsPlanUpfrontFee",
    ),
}
REQUESTED: tuple[Charge, ...] = ("usage", *_RECORD_TYPES)
"""What is asked for, one request each, where a site wants kinds of money told apart."""

# HyperPod nodes are `<REGION>-Cluster:ml.<type>`, EC2 nodes `<REGION>-BoxUsage:<type>` or `-SpotUsage:`.
NODE_USAGE = r"(?:^|-)(?:Cluster:ml\.|BoxUsage:|SpotUsage:)"
_NODE_USAGE = re.compile(NODE_USAGE)
_HOURS = frozenset({"hrs", "hours", "hour"})


@dataclass(frozen=True)
class ClusterTag:
    """The tag that tells one cluster's cost from the rest of the account."""

    key: str
    value: str


def request(
    month: Month,
    metric: str,
    tag_key: str,
    cluster: ClusterTag | None = None,
    page: str | None = None,
    charge: Charge | None = None,
) -> dict[str, Any]:
    """Arguments of GetCostAndUsage for one month by day, node group tag and usage type.

    Args:
        metric: one of METRICS; unblended and amortized cost are never added up.
        cluster: leave out what does not carry this tag; None for the whole account, tax and support included.
        page: the NextPageToken of the page before.
        charge: one of REQUESTED only; None for all together.
    """
    arguments: dict[str, Any] = {
        "TimePeriod": {"Start": month.start.isoformat(), "End": month.end.isoformat()},
        "Granularity": "DAILY",
        "Metrics": [metric, QUANTITY],
        "GroupBy": [{"Type": "TAG", "Key": tag_key}, {"Type": "DIMENSION", "Key": "USAGE_TYPE"}],
    }
    filters = [{"Tags": {"Key": cluster.key, "Values": [cluster.value]}}] if cluster else []
    filters += [_of_charge(charge)] if charge else []
    if filters:
        arguments["Filter"] = {"And": filters} if len(filters) > 1 else filters[0]
    if page:
        arguments["NextPageToken"] = page
    return arguments


def _of_charge(charge: Charge) -> dict[str, Any]:
    """The lines of one kind of money. Usage is all that is of no other kind: together they are the bill."""
    others = [name for names in _RECORD_TYPES.values() for name in names]
    values = _RECORD_TYPES.get(charge, others)
    condition = {"Dimensions": {"Key": "RECORD_TYPE", "Values": list(values)}}
    return condition if charge in _RECORD_TYPES else {"Not": condition}


def parse(
    pages: Iterable[Mapping[str, Any]], metric: str, tag_key: str, charge: Charge = "usage", cluster: str = ""
) -> tuple[BillRow, ...]:
    """Bill rows of all pages of one answer, sorted; rows of nothing (0 cost and 0 hours) are left out.

    Args:
        charge: what the request asked for.
        cluster: whose cost it asked for; empty for the whole account's.

    Raises:
        BudgetError: the answer does not have the documented form.
    """
    rows: dict[tuple[date, str, str, str], BillRow] = {}
    for page in pages:
        for row in _page_rows(page, metric, tag_key):
            row = replace(row, charge=charge, cluster=cluster)
            key = (row.day, row.node_group, row.usage, row.currency)
            rows[key] = _merge(rows[key], row) if key in rows else row
    return tuple(sorted(row for row in rows.values() if row.amount or row.node_hours))


def _page_rows(page: Mapping[str, Any], metric: str, tag_key: str) -> Iterable[BillRow]:
    try:
        for result in page["ResultsByTime"]:
            day = date.fromisoformat(result["TimePeriod"]["Start"])
            # With GroupBy the money is in Groups; Total is empty.
            for group in result["Groups"]:
                yield _row(group, day, bool(result["Estimated"]), metric, tag_key)
    except (KeyError, TypeError, ValueError) as error:
        raise BudgetError(
            f"Cost Explorer's answer does not have the documented form ({type(error).__name__}: {error})",
            "check that the endpoint is AWS Cost Explorer",
        ) from None


def _row(group: Mapping[str, Any], day: date, estimated: bool, metric: str, tag_key: str) -> BillRow:
    tag, usage = group["Keys"]
    cost = group["Metrics"][metric]
    amount = parse_amount(cost["Amount"])
    return BillRow(
        source=SOURCE,
        day=day,
        node_group=tag.removeprefix(tag_key).removeprefix("$"),
        usage=usage,
        metric=metric,
        currency=_currency(cost["Unit"], amount),
        amount=amount,
        node_hours=_node_hours(usage, group["Metrics"].get(QUANTITY)),
        estimated=estimated,
    )


def _currency(unit: str, amount: Decimal) -> str:
    """Cost Explorer may give "N/A" for the unit of nothing."""
    try:
        return parse_currency(unit)
    except BudgetError:
        if amount:
            raise
        return "XXX"


def _node_hours(usage: str, quantity: Mapping[str, str] | None) -> Decimal:
    if quantity is None or not _NODE_USAGE.search(usage) or quantity["Unit"].lower() not in _HOURS:
        return ZERO
    return parse_amount(quantity["Amount"])


def _merge(left: BillRow, right: BillRow) -> BillRow:
    return replace(
        left,
        amount=total((left.amount, right.amount)),
        node_hours=total((left.node_hours, right.node_hours)),
        estimated=left.estimated or right.estimated,
    )

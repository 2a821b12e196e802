"""Lines of providers' exports as tests need them, and files of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

TAG = "hpctools:node-group"
CLUSTER_TAG = "ClusterName"

CUR_LINE: dict[str, Any] = {
    "bill_billing_period_start_date": "2026-11-01T00:00:00.000Z",
    "bill_bill_type": "Anniversary",
    "bill_invoice_id": "",
    "bill_payer_account_id": "123456789012",
    "line_item_line_item_type": "Usage",
    "line_item_usage_start_date": "2026-11-03T07:00:00.000Z",
    "line_item_usage_type": "USE1-Cluster:ml.p4d.24xlarge",
    "line_item_product_code": "AmazonSageMaker",
    "line_item_resource_id": "arn:aws:sagemaker:us-east-1:123456789012:cluster/abc",
    "line_item_usage_amount": "1.0",
    "line_item_currency_code": "USD",
    "line_item_unblended_cost": "37.688",
    "line_item_blended_cost": "37.0",
    "pricing_unit": "Hrs",
    "reservation_reservation_a_r_n": "",
    "reservation_effective_cost": "0.0",
    "reservation_unused_amortized_upfront_fee_for_billing_period": "0.0",
    "reservation_unused_recurring_fee": "0.0",
    "savings_plan_savings_plan_effective_cost": "0.0",
    "savings_plan_total_commitment_to_date": "0.0",
    "savings_plan_used_commitment": "0.0",
    "split_line_item_parent_resource_id": "",
}

FOCUS_LINE: dict[str, Any] = {
    "BilledCost": "37.688",
    "EffectiveCost": "30.1",
    "BillingAccountId": "123456789012",
    "BillingCurrency": "USD",
    "BillingPeriodStart": "2026-11-01T00:00:00Z",
    "BillingPeriodEnd": "2026-12-01T00:00:00Z",
    "ChargeCategory": "Usage",
    "ChargeClass": "",
    "ChargePeriodStart": "2026-11-03T07:00:00Z",
    "CommitmentDiscountId": "",
    "CommitmentDiscountStatus": "",
    "ConsumedQuantity": "1",
    "ConsumedUnit": "Hours",
    "InvoiceId": "",
    "PricingCategory": "Standard",
    "ResourceId": "i-0abc",
    "ServiceCategory": "Compute",
    "ServiceName": "Amazon Elastic Compute Cloud",
    "SkuId": "SKU1",
    "x_UsageType": "USE1-BoxUsage:p4d.24xlarge",
}


def cur_line(tags: Mapping[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    """One node-hour of a HyperPod cluster, with what differs."""
    return CUR_LINE | {"resource_tags": json.dumps(dict(tags or {}))} | changes


def focus_line(tags: Mapping[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    """One hour of an instance, with what differs."""
    return FOCUS_LINE | {"Tags": json.dumps(dict(tags or {}))} | changes


def frame(*lines: Mapping[str, Any]) -> pl.DataFrame:
    """Lines as a CSV file has them: text only."""
    return pl.DataFrame([dict(line) for line in lines], infer_schema_length=None)


def as_parquet(lines: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Lines as AWS's Parquet has them: doubles, times, and the tags as a map."""
    table = frame(*lines)
    tags = "resource_tags" if "resource_tags" in table.columns else "Tags"
    numbers = [
        name
        for name in table.columns
        if name.endswith(
            ("_cost", "_fee", "_period", "_commitment", "_to_date", "_amount", "Cost", "Quantity")
        )
    ]
    times = [name for name in table.columns if name.endswith(("start_date", "PeriodStart", "PeriodEnd"))]
    pairs = [
        [{"key": key, "value": value} for key, value in json.loads(text or "{}").items()]
        for text in table[tags].to_list()
    ]
    kind = pl.List(pl.Struct({"key": pl.String, "value": pl.String}))
    table = table.with_columns(
        *(pl.col(name).cast(pl.Float64) for name in numbers if name not in times),
        *(pl.col(name).str.to_datetime(time_zone="UTC", time_unit="ms") for name in times),
        pl.Series(tags, pairs, dtype=kind),
    )
    table.write_parquet(path, compression="snappy")
    return path

"""FOCUS 1.0 to 1.2 (FinOps Open Cost and Usage Specification): what the lines of its exports mean. Pure.

Source: focus.finops.org, column library. EffectiveCost spreads commitments over their use and BilledCost is
what is invoiced: amortized measures read the one, unblended ones the other. FOCUS has discounts in both, so
measures with and without Net are the same, and it has nothing that is blended. Columns `x_...` are AWS's own.
"""

from __future__ import annotations

import polars as pl

from hpctools.budget import columns
from hpctools.budget.normalise import HOURS, LINES, Wanted, node_usage
from hpctools.budget.refusals import refuse_line
from hpctools.errors import BudgetError

SOURCE = "focus"
TAGS = "Tags"
_COSTS = {
    "NetAmortizedCost": "EffectiveCost",
    "AmortizedCost": "EffectiveCost",
    "NetUnblendedCost": "BilledCost",
    "UnblendedCost": "BilledCost",
}
REQUIRED = (
    "BillingCurrency",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargePeriodStart",
    "ServiceName",
    TAGS,
)
_WORDS = (
    "BillingAccountId",
    "BillingCurrency",
    "ChargeCategory",
    "ChargeClass",
    "CommitmentDiscountId",
    "CommitmentDiscountStatus",
    "ConsumedQuantity",
    "ConsumedUnit",
    "InvoiceId",
    "PricingCategory",
    "ResourceId",
    "ServiceCategory",
    "ServiceName",
    "SkuId",
    "SkuMeter",
    "x_UsageType",
)
COLUMNS = tuple(dict.fromkeys((*REQUIRED, *_WORDS, *_COSTS.values())))
"""What is read of an export; InvoiceId and SkuMeter came with 1.2 and 1.1."""

CATEGORIES = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
_CAPACITIES = {"Standard": "on-demand", "Dynamic": "spot", "Committed": "reserved"}


def cost_column(metric: str) -> str:
    """The column that has a measure of Cost Explorer's.

    Raises:
        BudgetError: FOCUS has none.
    """
    if metric not in _COSTS:
        raise BudgetError(f"FOCUS has no {metric}", f"use one of {', '.join(_COSTS)}")
    return _COSTS[metric]


def lines(frame: pl.DataFrame, wanted: Wanted, where: str) -> pl.DataFrame:
    """What a file's lines mean (`normalise.LINES`).

    Args:
        frame: any of COLUMNS, with the types that the file has.
        where: the file's name, for errors.

    Raises:
        BudgetError: columns are missing, or a line is none of that billing period.
    """
    cost = cost_column(wanted.metric)
    columns.require((*REQUIRED, cost), frame.columns, where, "FOCUS export")
    columns.one_month(frame, "BillingPeriodStart", wanted.month, where)
    said = frame.select(columns.words(frame, name) for name in _WORDS)
    _check_categories(said, where)
    made = said.select(
        columns.day(frame, "ChargePeriodStart", wanted.month, where),
        columns.tag(frame, TAGS, wanted.node_group_tag, where).alias("node_group"),
        columns.tag(frame, TAGS, wanted.cluster_tag, where).alias("cluster"),
        _usage().alias("usage"),
        pl.col("BillingCurrency").alias("currency"),
        frame.select(columns.number(frame, cost).alias("amount"))["amount"],
        _hours().alias("node_hours"),
        pl.col("ServiceName").alias("service"),
        _charge().alias("charge"),
        pl.col("ResourceId").alias("resource"),
        _capacity().alias("capacity"),
        pl.col("BillingAccountId").alias("billing_account"),
        pl.col("InvoiceId").alias("invoice"),
    )
    return made.select(list(LINES))


def _check_categories(said: pl.DataFrame, where: str) -> None:
    strange = said.filter(~pl.col("ChargeCategory").is_in(CATEGORIES))
    if strange.height:
        refuse_line(
            where,
            f"{strange['ChargeCategory'][0]!r:.60} is not a ChargeCategory",
            f"expected {', '.join(CATEGORIES)}",
        )


def _usage() -> pl.Expr:
    """The provider's usage type, or the finest name that there is for what was charged."""
    names = [pl.col(name) for name in ("x_UsageType", "SkuMeter", "SkuId", "ChargeCategory")]
    return pl.coalesce(*(pl.when(name != "").then(name) for name in names))


def _charge() -> pl.Expr:
    category = pl.col("ChargeCategory")
    of_commitment = (pl.col("CommitmentDiscountStatus") == "Unused") | (
        (category == "Purchase") & (pl.col("CommitmentDiscountId") != "")
    )
    return (
        pl.when(category.is_in(["Tax", "Credit"]))
        .then(category.str.to_lowercase())
        .when((pl.col("ChargeClass") == "Correction") | (category == "Adjustment"))
        .then(pl.lit("adjustment"))
        .when(of_commitment)
        .then(pl.lit("commitment"))
        .when(category == "Purchase")
        .then(pl.lit("fee"))
        .otherwise(pl.lit("usage"))
    )


def _is_node() -> pl.Expr:
    """Hours of running nodes: by AWS's usage type where there is one, otherwise any hours of computing."""
    aws = pl.col("x_UsageType")
    computes = (aws == "") & (pl.col("ServiceCategory") == "Compute")
    hours = pl.col("ConsumedUnit").str.to_lowercase().is_in(HOURS)
    return (_charge() == "usage") & hours & (node_usage(aws) | computes)


def _hours() -> pl.Expr:
    quantity = pl.col("ConsumedQuantity")
    return pl.when(_is_node() & (quantity != "")).then(quantity).otherwise(pl.lit("0"))


def _capacity() -> pl.Expr:
    known = pl.col("PricingCategory").replace_strict(_CAPACITIES, default="", return_dtype=pl.String)
    return pl.when(_is_node()).then(known).otherwise(pl.lit(""))

"""AWS Cost and Usage Report 2.0 (Data Exports, table COST_AND_USAGE_REPORT): what its lines mean. Pure.

Source: AWS Data Exports user guide, table dictionary of CUR 2.0; amortized cost as AWS's own query library
computes it: a line that a savings plan or reservation covers costs its effective cost; the fee of the plan
costs what nothing used of it; what was paid up front and what the plan takes off again count as zero. Columns
`split_*` (split cost allocation) tell parts of other lines' costs and are not read.
"""

from __future__ import annotations

import polars as pl

from hpctools.budget import columns
from hpctools.budget.normalise import HOURS, LINES, Wanted, exact, node_usage
from hpctools.budget.refusals import refuse_line

SOURCE = "aws-cur"
TAGS = "resource_tags"
KIND = "line_item_line_item_type"
REQUIRED = (
    "bill_billing_period_start_date",
    KIND,
    "line_item_currency_code",
    "line_item_usage_amount",
    "line_item_usage_start_date",
    "line_item_usage_type",
)
COLUMNS = (
    *REQUIRED,
    TAGS,
    "bill_bill_type",
    "bill_invoice_id",
    "bill_payer_account_id",
    "line_item_blended_cost",
    "line_item_net_unblended_cost",
    "line_item_product_code",
    "line_item_resource_id",
    "line_item_unblended_cost",
    "pricing_unit",
    "reservation_effective_cost",
    "reservation_net_effective_cost",
    "reservation_net_unused_amortized_upfront_fee_for_billing_period",
    "reservation_net_unused_recurring_fee",
    "reservation_reservation_a_r_n",
    "reservation_unused_amortized_upfront_fee_for_billing_period",
    "reservation_unused_recurring_fee",
    "savings_plan_net_savings_plan_effective_cost",
    "savings_plan_savings_plan_effective_cost",
    "savings_plan_total_commitment_to_date",
    "savings_plan_used_commitment",
    "split_line_item_parent_resource_id",
)
"""What is read of an export; of those that are not in REQUIRED it may lack any that its lines do not need."""

_WORDS = (
    KIND,
    "bill_bill_type",
    "bill_invoice_id",
    "bill_payer_account_id",
    "line_item_currency_code",
    "line_item_product_code",
    "line_item_resource_id",
    "line_item_usage_amount",
    "line_item_usage_type",
    "pricing_unit",
    "reservation_reservation_a_r_n",
)
_COVERED, _DISCOUNTED = "SavingsPlanCoveredUsage", "DiscountedUsage"
_PLAN_FEE, _RESERVATION_FEE = "SavingsPlanRecurringFee", "RIFee"
_OF_COMMITMENTS = (_PLAN_FEE, _RESERVATION_FEE, "SavingsPlanUpfrontFee", "SavingsPlanNegation")
_CHARGES = {
    "Usage": "usage",
    _COVERED: "usage",
    _DISCOUNTED: "usage",
    "Credit": "credit",
    "Refund": "refund",
    "Tax": "tax",
    "Fee": "fee",
    **dict.fromkeys(_OF_COMMITMENTS, "commitment"),
}


def lines(frame: pl.DataFrame, wanted: Wanted, where: str) -> pl.DataFrame:
    """What a file's lines mean (`normalise.LINES`).

    Args:
        frame: any of COLUMNS and of `resource_tags_...`, with the types that the file has.
        where: the file's name, for errors.

    Raises:
        BudgetError: columns are missing, or a line is none of that billing period and payer.
    """
    columns.require(REQUIRED, frame.columns, where, "CUR 2.0 export")
    if not any(name.startswith(TAGS) for name in frame.columns):
        columns.require([TAGS], frame.columns, where, "tags in the export")
    columns.one_month(frame, "bill_billing_period_start_date", wanted.month, where)
    said = frame.select(columns.words(frame, name) for name in _WORDS)
    made = said.select(
        columns.day(frame, "line_item_usage_start_date", wanted.month, where),
        columns.tag(frame, TAGS, wanted.node_group_tag, where).alias("node_group"),
        columns.tag(frame, TAGS, wanted.cluster_tag, where).alias("cluster"),
        _usage().alias("usage"),
        pl.col("line_item_currency_code").alias("currency"),
        _amounts(frame, wanted.metric, where).alias("amount"),
        _hours().alias("node_hours"),
        pl.col("line_item_product_code").alias("service"),
        _charge().alias("charge"),
        pl.col("line_item_resource_id").alias("resource"),
        _capacity().alias("capacity"),
        pl.col("bill_payer_account_id").alias("billing_account"),
        pl.col("bill_invoice_id").alias("invoice"),
    )
    return made.select(list(LINES))


def _usage() -> pl.Expr:
    """The usage type; what is not usage (tax, credit) may have none."""
    usage = pl.col("line_item_usage_type")
    return pl.when(usage == "").then(pl.col(KIND)).otherwise(usage)


def _charge() -> pl.Expr:
    kind = pl.col(KIND)
    known = kind.replace_strict(_CHARGES, default="adjustment", return_dtype=pl.String)
    upfront = (kind == "Fee") & (pl.col("reservation_reservation_a_r_n") != "")
    return (
        pl.when(upfront)
        .then(pl.lit("commitment"))
        .when((pl.col("bill_bill_type") == "Refund") & (known == "usage"))
        .then(pl.lit("refund"))
        .when(kind.str.ends_with("Discount"))
        .then(pl.lit("credit"))
        .otherwise(known)
    )


def _is_node() -> pl.Expr:
    uses = pl.col(KIND).is_in(["Usage", _COVERED, _DISCOUNTED])
    return uses & node_usage(pl.col("line_item_usage_type"))


def _hours() -> pl.Expr:
    unit = pl.col("pricing_unit").str.to_lowercase().is_in(["", *HOURS])
    quantity = pl.col("line_item_usage_amount")
    return pl.when(_is_node() & unit & (quantity != "")).then(quantity).otherwise(pl.lit("0"))


def _capacity() -> pl.Expr:
    usage = pl.col("line_item_usage_type")
    return (
        pl.when(~_is_node())
        .then(pl.lit(""))
        .when(pl.col(KIND).is_in([_COVERED, _DISCOUNTED]))
        .then(pl.lit("reserved"))
        .when(usage.str.contains("Spot", literal=True))
        .then(pl.lit("spot"))
        .otherwise(pl.lit("on-demand"))
    )


def _amounts(frame: pl.DataFrame, metric: str, where: str) -> pl.Series:
    """The cost of each line by a measure, as text.

    Net columns are there only where the payer has discounts: without one, the column without net is the same.
    """
    numbers = [name for name in COLUMNS if name.startswith(("line_item_", "savings_plan_", "reservation_"))]
    said = frame.select(
        *(columns.words(frame, name) for name in _TOLD),
        *(columns.number(frame, name) for name in numbers if name not in (*REQUIRED, *_TOLD)),
    )
    net = metric.startswith("Net")
    cash = "line_item_blended_cost" if metric == "BlendedCost" else "line_item_unblended_cost"
    of_split = pl.col("split_line_item_parent_resource_id") != ""
    cost = pl.coalesce(*([pl.col("line_item_net_unblended_cost")] if net else []), cash)
    # A line that splits another one's cost has none of its own.
    said = said.with_columns(cost=pl.when(of_split & cost.is_null()).then(pl.lit("0")).otherwise(cost))
    if metric.endswith("AmortizedCost"):
        said = said.with_columns(_amortized(said, net, where).alias("cost"))
    lacking = said.filter(pl.col("cost").is_null())
    if lacking.height:
        refuse_line(
            where, f"a line of the kind {lacking[KIND][0]!r} has no {metric}", f"export {cash} as well"
        )
    return said["cost"]


def _amortized(said: pl.DataFrame, net: bool, where: str) -> pl.Series:
    kind = pl.col(KIND)
    paid_up_front = (kind == "Fee") & (pl.col("reservation_reservation_a_r_n") != "")
    plan, reservation = f"savings_plan_{_NET[net]}savings_plan_", f"reservation_{_NET[net]}"
    expression = (
        pl.when(kind == _COVERED)
        .then(pl.coalesce(f"{plan}effective_cost", "savings_plan_savings_plan_effective_cost"))
        .when(kind == _DISCOUNTED)
        .then(pl.coalesce(f"{reservation}effective_cost", "reservation_effective_cost"))
        .when(kind == _PLAN_FEE)
        .then(_unused_plan(said, where))
        .when(kind == _RESERVATION_FEE)
        .then(_unused_reservation(said, reservation, where))
        .when(kind.is_in(["SavingsPlanUpfrontFee", "SavingsPlanNegation"]) | paid_up_front)
        .then(pl.lit("0"))
        .otherwise(pl.col("cost"))
    )
    return said.select(expression.alias("cost"))["cost"]


def _unused_plan(said: pl.DataFrame, where: str) -> pl.Series:
    """What was committed and is not used."""
    kind = pl.col(KIND) == _PLAN_FEE
    committed = _exact(said, kind, "savings_plan_total_commitment_to_date", where)
    used = _exact(said, kind, "savings_plan_used_commitment", where)
    unused: pl.Series = (committed - used).cast(pl.String)
    return unused


def _unused_reservation(said: pl.DataFrame, prefix: str, where: str) -> pl.Series:
    kind = pl.col(KIND) == _RESERVATION_FEE
    upfront, recurring = "unused_amortized_upfront_fee_for_billing_period", "unused_recurring_fee"
    net = {name: pl.coalesce(f"{prefix}{name}", f"reservation_{name}") for name in (upfront, recurring)}
    told = said.with_columns(**net)
    parts = _exact(told, kind, upfront, where), _exact(told, kind, recurring, where)
    unused: pl.Series = (parts[0] + parts[1]).cast(pl.String)
    return unused


def _exact(said: pl.DataFrame, lines: pl.Expr, name: str, where: str) -> pl.Series:
    """A column's numbers on some lines, null on others; refuses where one of them has none."""
    on = said.select(pl.when(lines).then(pl.col(name)).otherwise(pl.lit("0")).alias(name))[name]
    if on.null_count():
        refuse_line(where, f"a commitment's fee has no {name}", "export all columns of commitments as well")
    return exact(on, "cost", where)


_NET = ("", "net_")
_TOLD = (KIND, "reservation_reservation_a_r_n", "split_line_item_parent_resource_id")

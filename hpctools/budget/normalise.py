"""The one normaliser: lines of any provider's export become bill rows. Pure; needs polars.

A reader (`cur`, `focus`) says what each line of its format means, as columns of LINES. From there all formats
go one way: text is checked, money is read exactly, lines that differ in nothing but their amount are added
up. The sum of the rows is the sum of the lines, to the last digit, in each currency. (A line's digits beyond
the twentieth decimal place are rounded when it is read.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal

import polars as pl

from hpctools.budget.bill_table import SCHEMA, in_order, spell
from hpctools.budget.cost_explorer import NODE_USAGE
from hpctools.budget.month import DAY_SECONDS, Month, day_start
from hpctools.budget.refusals import clip, refuse_line
from hpctools.errors import BudgetError

LINES: dict[str, pl.DataType] = {
    "day": pl.Date(),
    "node_group": pl.String(),
    "usage": pl.String(),
    "currency": pl.String(),
    "amount": pl.String(),
    "node_hours": pl.String(),
    "service": pl.String(),
    "charge": pl.String(),
    "resource": pl.String(),
    "capacity": pl.String(),
    "billing_account": pl.String(),
    "invoice": pl.String(),
    "cluster": pl.String(),
}
"""What a reader makes of each line. `amount` and `node_hours` as the file spells them; nothing is null."""

HOURS = ("hrs", "hours", "hour", "hr")
"""Units of node-hours, in lower case."""

# AWS may change a month's export for two weeks after its end; what is on no invoice by then stays on none.
_SETTLED_DAYS = 15
INVOICED_DAYS = 62

_PLACES = 20
_MONEY = pl.Decimal(38, _PLACES)
_PLAIN = r"^[+-]?[0-9]{1,15}(\.[0-9]{0,20})?$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$"
_LONGEST_NUMBER = 64
_LONGEST_WORD = 1024
_TOO_MUCH = Decimal(10) ** 15
# Exports hold binary fractions, and what was computed from them can have any number of places.
_FINEST = Decimal(1).scaleb(-_PLACES)
_ROUNDING = Context(prec=1200, rounding=ROUND_HALF_EVEN)
# Beyond this, sums in 38 digits could overflow, which polars does not notice when it groups.
_MOST = 1e16
_KEY = tuple(name for name in LINES if name not in ("amount", "node_hours"))
_WORDS = tuple(name for name in _KEY if name != "day")


@dataclass(frozen=True)
class Wanted:
    """What is asked of an export.

    Attributes:
        source: the name of the rows' source.
        metric: the site's cost measure, by Cost Explorer's name.
        month: the billing period.
        node_group_tag, cluster_tag: keys of the tags that name a node group and the cluster.
        billing_account: the only one that the export may have; empty for whichever it has.
    """

    source: str
    metric: str
    month: Month
    node_group_tag: str
    cluster_tag: str
    billing_account: str = ""


def add_up(lines: pl.DataFrame, where: str) -> pl.DataFrame:
    """Lines (LINES) that differ in nothing but amount and hours become one; these are exact decimals now.

    Args:
        where: the file's name, for errors.

    Raises:
        BudgetError: an amount is none, or text is none that a provider would send; says which and where.
    """
    _check_words(lines, where)
    money = lines.with_columns(
        exact(lines["amount"], "cost", where), exact(lines["node_hours"], "quantity", where)
    )
    return merge([money])


def merge(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Add up several results of `add_up`.

    Raises:
        BudgetError: there is more money than money can be.
    """
    if not parts:
        return pl.DataFrame(
            schema={name: LINES[name] for name in _KEY} | {"amount": _MONEY, "node_hours": _MONEY}
        )
    whole = pl.concat(parts)
    for name in ("amount", "node_hours"):
        if (whole[name].cast(pl.Float64).abs().sum() or 0.0) > _MOST:
            raise BudgetError(
                f"the bill's {name.replace('_', ' ')} add up to more than 10^16", "check the export"
            )
    return whole.group_by(_KEY).agg(pl.col("amount", "node_hours").sum())


def finish(lines: pl.DataFrame, wanted: Wanted, now: int, numbers_invoices: bool = True) -> pl.DataFrame:
    """Bill rows (`bill_table.SCHEMA`) out of what was added up; rows of nothing are left out.

    A row is estimated while it is on no invoice, unless usage of the month is invoiced already (some lines
    never are), or the month is over for so long that nothing changes any more.

    Args:
        now: Unix seconds.
        numbers_invoices: the export tells invoices' numbers.

    Raises:
        BudgetError: somebody else pays than the site says.
    """
    _check_payer(lines, wanted)
    days = INVOICED_DAYS if numbers_invoices else _SETTLED_DAYS
    late = now >= day_start(wanted.month.end) + days * DAY_SECONDS
    issued = bool(((lines["invoice"] != "") & (lines["charge"] == "usage")).any())
    rows = lines.filter((pl.col("amount") != 0) | (pl.col("node_hours") != 0)).with_columns(
        _spelled("amount"),
        _spelled("node_hours"),
        source=pl.lit(wanted.source),
        metric=pl.lit(wanted.metric),
        estimated=(pl.col("invoice") == "") & pl.lit(not (issued or late)),
    )
    return in_order(rows.select(list(SCHEMA)))


def _check_payer(lines: pl.DataFrame, wanted: Wanted) -> None:
    others = lines.filter(pl.col("billing_account") != wanted.billing_account)
    if wanted.billing_account and others.height:
        raise BudgetError(
            f"{wanted.source} has costs of the billing account {clip(others['billing_account'][0])}, "
            f"expected {wanted.billing_account} only",
            "correct billing.sources in the site file, or the export; nothing was stored",
        )


def node_usage(usage: pl.Expr) -> pl.Expr:
    """Whether a usage type is that of running nodes."""
    return usage.str.contains(NODE_USAGE)


def exact(texts: pl.Series, what: str, where: str) -> pl.Series:
    """Numbers as a file spells them, as exact decimals.

    Raises:
        BudgetError: one is no finite decimal number, or more than money can be.
    """
    is_strange = ~pl.col(texts.name).str.contains(_PLAIN).fill_null(False)
    strange = texts.to_frame().lazy().filter(is_strange).unique().collect()[texts.name].to_list()
    spelled = {text: _spelling(text, what, where) for text in strange}
    plain: pl.Series = texts.replace(list(spelled), list(spelled.values())) if spelled else texts
    money: pl.Series = plain.cast(_MONEY)
    return money


def _spelling(text: str | None, what: str, where: str) -> str:
    if text is None or len(text) > _LONGEST_NUMBER or not pl.Series([text]).str.contains(_NUMBER).item():
        refuse_line(where, f"{clip(text)} is not a {what}", "expected a decimal number such as 12.34")
    amount = Decimal(text)
    if amount.copy_abs() >= _TOO_MUCH:
        refuse_line(where, f"{clip(text)} is not a {what}", "expected less than 10^15")
    return spell(amount.quantize(_FINEST, context=_ROUNDING))


def _spelled(name: str) -> pl.Expr:
    text = pl.col(name).cast(pl.String).str.strip_chars_end("0").str.strip_chars_end(".")
    return pl.when(pl.col(name) == 0).then(pl.lit("0")).otherwise(text).alias(name)


def _check_words(lines: pl.DataFrame, where: str) -> None:
    bad = {
        name: pl.col(name).is_null()
        | (pl.col(name).str.len_bytes() > _LONGEST_WORD)
        | pl.col(name).str.contains(r"[\x00-\x1f\x7f]")
        for name in _WORDS
    } | {"currency": ~pl.col("currency").str.contains(r"^[A-Z]{3}$").fill_null(False)}
    found = lines.select(test.any().alias(name) for name, test in bad.items()).row(0, named=True)
    for name in (name for name, is_bad in found.items() if is_bad):
        word = lines.filter(bad[name])[name][0]
        expected = "expected an ISO 4217 code such as USD" if name == "currency" else "check the export"
        refuse_line(where, f"{clip(word)} is not a {name.replace('_', ' ')}", expected)

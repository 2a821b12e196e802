"""Columns of a provider's export, whatever their types: Parquet has times and maps, CSV has text. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

import polars as pl

from hpctools.budget.month import Month
from hpctools.budget.refusals import clip, refuse_line

_NO_TAG = ""
_PREFIX = re.compile(r"^(resource_?tags[/_:])?(user[:_])?", re.IGNORECASE)


def require(names: Sequence[str], present: Iterable[str], where: str, what: str) -> None:
    """Check that an export has the columns that it must have.

    Raises:
        BudgetError: it lacks some; names them.
    """
    missing = sorted(set(names) - set(present))
    if missing:
        refuse_line(where, f"no {what}: the columns {', '.join(missing)} are missing", "export these as well")


def words(frame: pl.DataFrame, name: str) -> pl.Expr:
    """A column as text; empty where it has nothing or is missing."""
    if name not in frame.columns:
        return pl.lit("").alias(name)
    return pl.col(name).cast(pl.String).fill_null("").str.strip_chars().alias(name)


def number(frame: pl.DataFrame, name: str) -> pl.Expr:
    """A column of numbers as text; null where it has nothing or is missing."""
    if name not in frame.columns:
        return pl.lit(None, pl.String).alias(name)
    text = pl.col(name).cast(pl.String).str.strip_chars()
    return pl.when(text == "").then(None).otherwise(text).alias(name)


def day(frame: pl.DataFrame, name: str, month: Month, where: str) -> pl.Series:
    """The UTC day of each moment, as a day of the month that it is billed in.

    What a month's bill has of other days (refunds, one-time fees) counts on the month's nearest day.

    Raises:
        BudgetError: one is no moment.
    """
    days = _date(frame[name], where)
    last = max(month.days)
    return days.clip(month.start, last).alias("day")


def one_month(frame: pl.DataFrame, name: str, month: Month, where: str) -> None:
    """Check that all of a file is of one billing period.

    Raises:
        BudgetError: it has lines of another.
    """
    starts = _date(frame[name].unique(), where).unique()
    strange = starts.filter(starts != month.start)
    if len(strange):
        refuse_line(where, f"has lines of the billing period {strange[0]}", f"expected {month} only")


def _date(moments: pl.Series, where: str) -> pl.Series:
    if moments.dtype == pl.Date:
        days = moments
    elif isinstance(moments.dtype, pl.Datetime):
        days = _utc(moments).dt.date()
    else:
        days = (
            moments.cast(pl.String).str.strip_chars().str.extract(r"^([0-9]{4}-[0-9]{2}-[0-9]{2})([T ].*)?$")
        )
        days = days.str.to_date("%Y-%m-%d", strict=False)
    if days.null_count():
        refuse_line(where, f"{clip(moments.filter(days.is_null())[0])} is not a day", "check the export")
    return days


def _utc(moments: pl.Series) -> pl.Series:
    zone = moments.dtype.time_zone if isinstance(moments.dtype, pl.Datetime) else None
    return moments.dt.convert_time_zone("UTC") if zone else moments


def tag(frame: pl.DataFrame, column: str, key: str, where: str) -> pl.Series:
    """The value of one tag on each line; empty where there is none.

    The tags are a map (Parquet), a JSON object (CSV), or a column each (`resource_tags_user_...`). AWS spells
    keys differently in its exports (`user:Team`, `user_team`): what differs only in that is taken for the
    same key, the exact spelling first.

    Raises:
        BudgetError: the tags have none of these forms.
    """
    flat = [name for name in frame.columns if name != column and name.startswith(column)]
    if column in frame.columns:
        kind = frame.schema[column]
        values = (
            _of_map(frame[column], key) if isinstance(kind, pl.List) else _of_text(frame, column, key, where)
        )
    else:
        found = _matching(key, flat)
        values = (
            frame[found].cast(pl.String) if found else pl.Series([_NO_TAG]).new_from_index(0, frame.height)
        )
    return values.fill_null(_NO_TAG).str.strip_chars().alias(key)


def _of_map(tags: pl.Series, key: str) -> pl.Series:
    """Of a list of {key, value}."""
    pairs = (
        pl.DataFrame({"line": pl.int_range(len(tags), eager=True), "tag": tags}).explode("tag").drop_nulls()
    )
    pairs = pairs.select("line", pl.col("tag").struct.rename_fields(["key", "value"])).unnest("tag")
    spellings = _spellings(key, pairs["key"].unique().to_list())
    order = {name: rank for rank, name in enumerate(spellings)}
    chosen = (
        pairs.filter(pl.col("key").is_in(spellings))
        .with_columns(rank=pl.col("key").replace_strict(order, default=None, return_dtype=pl.Int32))
        .sort("line", "rank")
        .unique("line", keep="first", maintain_order=True)
    )
    lines = pl.DataFrame({"line": pl.int_range(len(tags), eager=True)})
    values: pl.Series = lines.join(chosen, on="line", how="left", maintain_order="left")["value"]
    text: pl.Series = values.cast(pl.String)
    return text


def _of_text(frame: pl.DataFrame, column: str, key: str, where: str) -> pl.Series:
    """Of JSON objects, or of a struct with a field for each key."""
    tags = frame[column]
    if isinstance(tags.dtype, pl.Struct):
        tags = tags.struct.json_encode()
    texts = tags.cast(pl.String).fill_null("")
    values = {text: _value(text, key, where) for text in texts.unique().to_list()}
    found: pl.Series = texts.replace_strict(list(values), list(values.values()), return_dtype=pl.String)
    return found


def _value(text: str, key: str, where: str) -> str:
    if not text.strip():
        return _NO_TAG
    try:
        tags = json.loads(text)
    except (ValueError, RecursionError):
        tags = None
    if not isinstance(tags, dict):
        refuse_line(where, f"{clip(text)} is not a set of tags", "expected a JSON object")
    found = _matching(key, tags)
    value = tags[found] if found else None
    return value if isinstance(value, str) else _NO_TAG if value is None else json.dumps(value)


def _matching(key: str, names: Iterable[str]) -> str | None:
    found = _spellings(key, names)
    return found[0] if found else None


def _spellings(key: str, names: Iterable[str]) -> list[str]:
    """Which names mean a key: itself, then with AWS's prefix, then as AWS spells it in a column's name."""
    same = [name for name in names if name == key or _plain(key) in (_plain(name), _plain(_bare(name)))]
    return sorted(same, key=lambda name: (name != key, name != f"user:{key}", name))


def _bare(name: str) -> str:
    return _PREFIX.sub("", name, count=1)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())

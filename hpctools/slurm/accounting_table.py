"""sacct's answers as columns: millions of jobs, read without an object for each.

Needs the `api` extra. A table has the fields of `JobRecord`, by the same names and in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple

import polars as pl

from hpctools.slurm.accounting import FIELDS, LABELS, JobRecord, duration, parse, tres

TEXTS = ("cluster", "user", "account", "partition", "qos", "state", "nodes", "reservation", "name", "run")
COLUMNS = tuple(JobRecord.__dataclass_fields__)

_UNKNOWN = ("", "None", "Unknown", "None assigned")
_NUMBER = r"\d+(?:\.\d+)?[KMGTP]?"
_LIST = rf"^(?:[^,]+={_NUMBER}(?:,[^,]+={_NUMBER})*)?$"
_MOMENT = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$"


class _OddError(Exception):
    """Something that the fast way does not know."""


def schema() -> dict[str, pl.DataType]:
    """The columns and their types; `start` and `end` may be null."""
    return {name: pl.String() if name in TEXTS else pl.Int64() for name in COLUMNS}


def from_records(records: Iterable[JobRecord]) -> pl.DataFrame:
    """Records as a table, in their order."""
    return pl.DataFrame([astuple(record) for record in records], schema=schema(), orient="row")


def to_records(table: pl.DataFrame) -> list[JobRecord]:
    """A table as records, in its order."""
    return [JobRecord(*row) for row in table.select(COLUMNS).iter_rows()]


def read(text: str) -> pl.DataFrame:
    """A table out of sacct's output, in its order: the same as `parse`, which it asks where a line is odd.

    Raises:
        BudgetError: a line does not have the fields that were asked for; says which.
    """
    if not text.strip("\n"):
        return from_records(())
    try:
        return _converted(_raw(text))
    except (_OddError, ValueError, pl.exceptions.PolarsError):
        return from_records(parse(text))


def _raw(text: str) -> pl.DataFrame:
    """The lines cut into their fields, as text."""
    labelled = text.partition("\n")[0].count("|") >= len(FIELDS)
    names = (*FIELDS, *LABELS) if labelled else FIELDS
    raw = pl.read_csv(
        text.encode(),
        has_header=False,
        separator="|",
        quote_char=None,
        schema=dict.fromkeys(names, pl.String()),
    )
    lines = text.count("\n") + (not text.endswith("\n"))
    if raw.height != lines or text.count("|") != lines * (len(names) - 1) or "\r" in text:
        raise _OddError
    missing = [] if labelled else [pl.lit("").alias(name) for name in LABELS]
    return raw.fill_null("").with_columns(missing)


def _converted(raw: pl.DataFrame) -> pl.DataFrame:
    found = raw["AllocTRES"]
    if not found.str.contains(_LIST).all():
        raise _OddError
    table = raw.select(
        cluster="Cluster",
        dbindex=_whole("DBIndex"),
        job_id=_whole("JobIDRaw"),
        user="User",
        account="Account",
        partition="Partition",
        qos="QOS",
        submitted=_seconds(raw, "Submit").fill_null(0),
        start=_seconds(raw, "Start"),
        end=_seconds(raw, "End"),
        suspended_seconds=_mapped(raw["Suspended"], duration),
        state=pl.col("State").str.split_exact(" by ", 1).struct.field("field_0"),
        cpus=_count(found, "cpu"),
        memory_mb=_memory(found),
        gpus=_gres(found, "gpu"),
        shards=_gres(found, "shard"),
        nodes=pl.when(pl.col("NodeList").is_in(_UNKNOWN)).then(pl.lit("")).otherwise("NodeList"),
        reservation="Reservation",
        name="JobID",
        run="Comment",
    )
    return table.cast(dict(schema()))  # type: ignore[arg-type]


def _whole(name: str) -> pl.Expr:
    return pl.col(name).str.to_integer(strict=True)


def _seconds(raw: pl.DataFrame, name: str) -> pl.Series:
    """Unix seconds; null where Slurm does not know."""
    known = raw[name].to_frame().select(pl.when(~pl.col(name).is_in(_UNKNOWN)).then(name)).to_series()
    if not known.drop_nulls().str.contains(_MOMENT).all():
        raise _OddError
    return known.str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=True).dt.epoch("s")


def _count(found: pl.Series, name: str) -> pl.Series:
    return found.str.extract(rf"(?:^|,){name}=(\d+)(?:,|$)").str.to_integer(strict=True).fill_null(0)


def _memory(found: pl.Series) -> pl.Series:
    sizes = found.str.extract(rf"(?:^|,)mem=({_NUMBER})(?:,|$)").fill_null("0")
    return _mapped(sizes, lambda size: tres(f"mem={size}")["mem"])


def _gres(found: pl.Series, name: str) -> pl.Series:
    """How many of a GRES: the plain entry; where there is none, the typed ones together."""
    plain = found.str.extract(rf"(?:^|,)gres/{name}=(\d+)(?:,|$)").str.to_integer(strict=True)
    typed = plain.is_null() & found.str.contains(f"gres/{name}:", literal=True)
    if not typed.any():
        return plain.fill_null(0)

    def together(text: str) -> int:
        return sum(count for entry, count in tres(text).items() if entry.startswith(f"gres/{name}:"))

    only = pl.select(pl.when(typed).then(found).otherwise(pl.lit(""))).to_series()
    return pl.select(pl.coalesce(plain, _mapped(only, together))).to_series()


def _mapped(values: pl.Series, meaning: Callable[[str], int]) -> pl.Series:
    """Each distinct text is understood once."""
    meanings = {value: meaning(value) for value in values.unique()}
    result: pl.Series = values.replace_strict(meanings, return_dtype=pl.Int64)
    return result

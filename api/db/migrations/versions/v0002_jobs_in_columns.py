"""Jobs and their costs in columns, entries in pairs.

Going back, jobs get one version each; what was posted stays, the parts of days by job are lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import sqlalchemy as sa
from alembic import op

from api.db.exact import Exact, exact_sum
from api.db.job_store import batch, newest
from api.db.migrations.append_only import refuse_changes
from hpctools.slurm.accounting_table import COLUMNS, schema

revision = "v0002"
down_revision = "v0001"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
EXACT = sa.Numeric().with_variant(sa.Text(), "sqlite")
APPEND_ONLY = ("job_batch", "job_pull", "attributed_day", "clearing_entry")
_LATER = ("name", "run")
"""Columns of jobs that the first release did not have."""
_OF_FIRST = tuple(name for name in COLUMNS if name not in _LATER)
_AT_ONCE = 10_000


def upgrade() -> None:
    op.add_column("ledger_entry", sa.Column("capacity", sa.String(16), nullable=False, server_default=""))
    op.add_column("ledger_entry", sa.Column("reason", sa.String(32), nullable=False, server_default=""))
    # A run of the first release does not tell; a later one of the month will.
    final = sa.Column("final", sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column("attribution_run", final)
    _job_tables()
    _attributed_day()
    _clearing()
    _jobs_into_batches()
    op.drop_table("job_version")
    _clear_what_was_posted()
    for table in APPEND_ONLY:
        refuse_changes(table)


def downgrade() -> None:
    _job_version()
    _batches_into_jobs()
    refuse_changes("job_version")
    for table in ("clearing_entry", "attributed_day", "job_pull", "job_batch"):
        op.drop_table(table)
    op.drop_column("attribution_run", "final")
    op.drop_column("ledger_entry", "reason")
    op.drop_column("ledger_entry", "capacity")


def _job_tables() -> None:
    op.create_table(
        "job_batch",
        sa.Column("id", ID, primary_key=True),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
        sa.Column("first_start", sa.BigInteger, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=True),
        sa.Column("row_count", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_index("job_batch_by_day", "job_batch", ["day"])
    op.create_table(
        "job_pull",
        sa.Column("id", ID, primary_key=True),
        sa.Column("first", sa.Date, nullable=False),
        sa.Column("end", sa.Date, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )
    op.create_index("job_pull_by_window", "job_pull", ["first", "end"])


def _attributed_day() -> None:
    digests = ("bill_digest", "jobs_digest", "policy_digest")
    op.create_table(
        "attributed_day",
        sa.Column("id", ID, primary_key=True),
        sa.Column("run_id", ID, sa.ForeignKey("attribution_run.id"), nullable=False),
        sa.Column("metric", sa.String(32), nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        *(sa.Column(name, sa.String(64), nullable=False) for name in digests),
        sa.Column("counted_to", sa.BigInteger, nullable=False),
        sa.Column("places", sa.Integer, nullable=False),
        sa.Column("provisional", sa.Boolean, nullable=False),
        sa.Column("costs_digest", sa.String(64), nullable=False),
        *(sa.Column(name, sa.LargeBinary, nullable=False) for name in ("charges", "jobs", "use")),
        sa.UniqueConstraint("run_id", "day"),
    )
    op.create_index("attributed_day_by_day", "attributed_day", ["metric", "day"])


def _clearing() -> None:
    op.create_table(
        "clearing_entry",
        sa.Column("id", ID, primary_key=True),
        sa.Column("run_id", ID, sa.ForeignKey("attribution_run.id"), nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("node_group", sa.String(256), nullable=False),
        sa.Column("capacity", sa.String(16), nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("amount", EXACT, nullable=False),
        sa.UniqueConstraint("run_id", "day", "node_group", "capacity", "currency"),
    )


def _clear_what_was_posted() -> None:
    """The other side of the entries of the first release."""
    names = ("run_id", "node_group", "capacity", "currency")
    entries = _amounts("ledger_entry", names)
    keys = [entries.c.day, *(entries.c[name] for name in names)]
    sums = sa.select(*keys, exact_sum(entries.c.amount).label("amount")).group_by(*keys)
    rows = [dict(row._mapping) | {"amount": -row.amount} for row in op.get_bind().execute(sums) if row.amount]
    _fill(_amounts("clearing_entry", names), rows)


def _amounts(table: str, names: Sequence[str]) -> sa.TableClause:
    columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in names]
    return sa.table(table, sa.column("day", sa.Date), *columns, sa.column("amount", Exact))


def _jobs_into_batches() -> None:
    columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in _OF_FIRST]
    jobs = sa.table("job_version", *columns, sa.column("seen_at"), sa.column("version"))
    query = sa.select(*columns, jobs.c.seen_at).select_from(jobs).order_by(jobs.c.version)
    rows = [tuple(row) for row in op.get_bind().execute(query)]
    kinds = {name: kind for name, kind in schema().items() if name in _OF_FIRST}
    table = pl.DataFrame(rows, schema=kinds | {"seen_at": pl.Int64()}, orient="row")
    table = table.with_columns(pl.lit("").alias(name) for name in _LATER)
    known = table.unique(["cluster", "dbindex"], keep="last")
    batches = [
        batch(part.drop("seen_at", "day"), int(str(day)), int(str(seen)))
        for (day, seen), part in known.with_columns(day=pl.col("submitted") // 86400).group_by(
            "day", "seen_at"
        )
    ]
    _fill(_batches(), batches)


def _batches_into_jobs() -> None:
    stored_as = _batches()
    content = sa.select(stored_as.c.content, stored_as.c.seen_at).order_by(sa.column("id"))
    stored = [(bytes(data), seen) for data, seen in op.get_bind().execute(content)]
    known = newest(stored).rename({"seen": "seen_at"}).drop(_LATER)
    rows = [row | {"version": 1, "digest": ""} for row in known.iter_rows(named=True)]
    names = [*_OF_FIRST, "seen_at", "version", "digest"]
    _fill(sa.table("job_version", *(sa.column(name) for name in names)), rows)


def _batches() -> sa.TableClause:
    names = ("seen_at", "first_start", "until", "row_count", "digest")
    plain: list[sa.ColumnClause[Any]] = [sa.column(name) for name in names]
    return sa.table("job_batch", sa.column("day", sa.Date), *plain, sa.column("content", sa.LargeBinary))


def _fill(table: sa.TableClause, rows: Sequence[dict[str, Any]]) -> None:
    for first in range(0, len(rows), _AT_ONCE):
        op.get_bind().execute(sa.insert(table), list(rows[first : first + _AT_ONCE]))


def _job_version() -> None:
    texts = (("user", 128), ("account", 128), ("partition", 128), ("qos", 128))
    op.create_table(
        "job_version",
        sa.Column("id", ID, primary_key=True),
        sa.Column("cluster", sa.String(64), nullable=False),
        sa.Column("dbindex", sa.BigInteger, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("job_id", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.String(length), nullable=False) for name, length in texts),
        sa.Column("submitted", sa.BigInteger, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        sa.Column("end", sa.BigInteger, nullable=True),
        sa.Column("suspended_seconds", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("cpus", "memory_mb", "gpus", "shards")),
        sa.Column("nodes", sa.String, nullable=False),
        sa.Column("reservation", sa.String(256), nullable=False),
        sa.UniqueConstraint("cluster", "dbindex", "version"),
    )
    op.create_index("job_version_by_time", "job_version", ["start", "end"])

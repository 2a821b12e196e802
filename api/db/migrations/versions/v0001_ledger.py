"""Bill, jobs, ledger and tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.db.migrations.append_only import allow_refusing, forget_refusing, refuse_changes

revision = "v0001"
down_revision = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
EXACT = sa.Numeric().with_variant(sa.Text(), "sqlite")
APPEND_ONLY = ("bill_day", "bill_item", "job_version", "attribution_run", "run_coverage", "ledger_entry")


def upgrade() -> None:
    _bill()
    _jobs()
    _ledger()
    _tokens()
    allow_refusing()
    for table in APPEND_ONLY:
        refuse_changes(table)


def downgrade() -> None:
    for table in ("ledger_entry", "run_coverage", "attribution_run", "job_version", "bill_item", "bill_day"):
        op.drop_table(table)
    op.drop_table("api_token")
    forget_refusing()


def _bill() -> None:
    op.create_table(
        "bill_day",
        sa.Column("id", ID, primary_key=True),
        sa.Column("source", sa.String(32), nullable=False),
        sa.Column("metric", sa.String(32), nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("fetched_at", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.UniqueConstraint("source", "metric", "day", "version"),
    )
    op.create_table(
        "bill_item",
        sa.Column("id", ID, primary_key=True),
        sa.Column("bill_day_id", ID, sa.ForeignKey("bill_day.id"), nullable=False),
        sa.Column("node_group", sa.String(256), nullable=False),
        sa.Column("usage", sa.String(256), nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("amount", EXACT, nullable=False),
        sa.Column("node_hours", EXACT, nullable=False),
        sa.Column("estimated", sa.Boolean, nullable=False),
        sa.UniqueConstraint("bill_day_id", "node_group", "usage", "currency"),
    )


def _jobs() -> None:
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


def _ledger() -> None:
    op.create_table(
        "attribution_run",
        sa.Column("id", ID, primary_key=True),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("metric", sa.String(32), nullable=False),
        sa.Column("as_of", sa.BigInteger, nullable=False),
        sa.Column("billed_through", sa.Date, nullable=True),
        sa.Column("estimated", sa.Boolean, nullable=False),
    )
    op.create_index("attribution_run_by_month", "attribution_run", ["month", "metric"])
    op.create_table(
        "run_coverage",
        sa.Column("run_id", ID, sa.ForeignKey("attribution_run.id"), primary_key=True),
        sa.Column("account", sa.String(128), primary_key=True),
        sa.Column("billed", EXACT, nullable=False),
        sa.Column("used", EXACT, nullable=False),
    )
    op.create_table(
        "ledger_entry",
        sa.Column("id", ID, primary_key=True),
        sa.Column("run_id", ID, sa.ForeignKey("attribution_run.id"), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("metric", sa.String(32), nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("node_group", sa.String(256), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("account", sa.String(128), nullable=False),
        sa.Column("user", sa.String(128), nullable=False),
        sa.Column("cluster", sa.String(64), nullable=False),
        sa.Column("dbindex", sa.BigInteger, nullable=False),
        sa.Column("job_id", sa.BigInteger, nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("amount", EXACT, nullable=False),
    )
    op.create_index("ledger_entry_by_month", "ledger_entry", ["month", "metric", "account"])


def _tokens() -> None:
    op.create_table(
        "api_token",
        sa.Column("id", ID, primary_key=True),
        sa.Column("name", sa.String(128), nullable=False, unique=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("account", sa.String(128), nullable=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=True),
        sa.Column("revoked_at", sa.BigInteger, nullable=True),
    )

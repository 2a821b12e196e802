"""Budgets, alerts and enforcement."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.db.migrations.append_only import refuse_changes

revision = "v0004"
down_revision = "v0003"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
EXACT = sa.Numeric().with_variant(sa.Text(), "sqlite")
TABLES = (
    "budget_version",
    "budget_approval",
    "burn_reading",
    "budget_alert",
    "alert_message",
    "alert_attempt",
    "enforcement_act",
)


def upgrade() -> None:
    _budgets()
    _alerts()
    _enforcement()
    for table in TABLES:
        refuse_changes(table)


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _made() -> tuple[sa.Column[object], ...]:
    return (
        sa.Column("made_at", sa.BigInteger, nullable=False),
        sa.Column("made_by", sa.String(256), nullable=False),
        sa.Column("why", sa.Text, nullable=False),
    )


def _budgets() -> None:
    op.create_table(
        "budget_version",
        sa.Column("id", ID, primary_key=True),
        sa.Column("account", sa.String(128), nullable=False),
        sa.Column("effective", sa.Date, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("from_site", sa.Boolean, nullable=False),
        *_made(),
    )
    op.create_index("budget_version_by_account", "budget_version", ["account", "id"])
    op.create_table(
        "budget_approval",
        sa.Column("id", ID, primary_key=True),
        sa.Column("account", sa.String(128), nullable=False),
        sa.Column("granted", sa.Date, nullable=False),
        sa.Column("amount", EXACT, nullable=False),
        sa.Column("until", sa.Date, nullable=False),
        *_made(),
    )
    op.create_index("budget_approval_by_account", "budget_approval", ["account"])
    op.create_table(
        "burn_reading",
        sa.Column("id", ID, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("account", sa.String(128), nullable=False),
        sa.Column("per_hour", EXACT, nullable=False),
        sa.Column("unbilled", EXACT, nullable=False),
        sa.Column("jobs", sa.Integer, nullable=False),
        sa.UniqueConstraint("at", "account"),
    )


def _alerts() -> None:
    op.create_table(
        "budget_alert",
        sa.Column("id", ID, primary_key=True),
        sa.Column("version_id", ID, sa.ForeignKey("budget_version.id"), nullable=False),
        sa.Column("period_first", sa.Date, nullable=False),
        sa.Column("threshold", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("account", sa.String(128), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("allowed", EXACT, nullable=False),
        sa.Column("reached", EXACT, nullable=False),
        sa.UniqueConstraint("version_id", "period_first", "threshold", "kind"),
    )
    op.create_index("budget_alert_by_account", "budget_alert", ["account", "id"])
    op.create_table(
        "alert_message",
        sa.Column("id", ID, primary_key=True),
        sa.Column("alert_id", ID, sa.ForeignKey("budget_alert.id"), nullable=False),
        sa.Column("channel", sa.String(16), nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("key", sa.String(64), nullable=False, unique=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "alert_attempt",
        sa.Column("id", ID, primary_key=True),
        sa.Column("message_id", ID, sa.ForeignKey("alert_message.id"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.UniqueConstraint("message_id", "number", "state"),
    )


def _enforcement() -> None:
    op.create_table(
        "enforcement_act",
        sa.Column("id", ID, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("by", sa.String(256), nullable=False),
        sa.Column("account", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("submitted", sa.BigInteger, nullable=False),
        sa.Column("key", sa.String(32), nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
    )
    op.create_index("enforcement_act_by_subject", "enforcement_act", ["kind", "subject", "id"])

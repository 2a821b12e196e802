"""Who may do what, and who did."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.db.migrations.append_only import refuse_changes

revision = "v0005"
down_revision = "v0004"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
APPEND_ONLY = ("audit_entry", "reconciliation", "reconciliation_event")
TABLES = ("reconciliation_event", "reconciliation", "idempotent_answer", "audit_entry")


def upgrade() -> None:
    op.add_column("api_token", sa.Column("scopes", sa.String(64), nullable=False, server_default="read"))
    # A token for everything was an administrator's.
    op.execute("UPDATE api_token SET scopes = 'read write enforce admin' WHERE account IS NULL")
    _audit()
    _answers()
    _reconciliations()
    for table in APPEND_ONLY:
        refuse_changes(table)


def downgrade() -> None:
    for table in TABLES:
        op.drop_table(table)
    # The release before knows no scopes: each of its tokens only reads.
    op.drop_column("api_token", "scopes")


def _audit() -> None:
    op.create_table(
        "audit_entry",
        sa.Column("id", ID, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("principal", sa.String(256), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(256), nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("previous", sa.String(64), nullable=False, unique=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
    )


def _answers() -> None:
    op.create_table(
        "idempotent_answer",
        sa.Column("id", ID, primary_key=True),
        sa.Column("principal", sa.String(256), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Integer, nullable=True),
        sa.Column("headers", sa.Text, nullable=True),
        sa.Column("body", sa.LargeBinary, nullable=True),
        sa.UniqueConstraint("principal", "key"),
    )


def _reconciliations() -> None:
    op.create_table(
        "reconciliation",
        sa.Column("id", ID, primary_key=True),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("principal", sa.String(256), nullable=False),
        sa.Column("requested_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "reconciliation_event",
        sa.Column("id", ID, primary_key=True),
        sa.Column("reconciliation_id", ID, sa.ForeignKey("reconciliation.id"), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("reconciliation_event_by_run", "reconciliation_event", ["reconciliation_id", "id"])

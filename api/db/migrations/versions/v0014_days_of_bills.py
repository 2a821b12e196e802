"""What the site file said of own nodes, by day; how far each source's bill was posted; events by time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.db.migrations.append_only import refuse_changes

revision = "v0014"
down_revision = "v0013"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "own_nodes_note",
        sa.Column("id", ID, primary_key=True),
        sa.Column("first", sa.Date, nullable=False),
        sa.Column("end", sa.Date, nullable=False),
        sa.Column("noted_at", sa.BigInteger, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    refuse_changes("own_nodes_note")
    op.add_column("attribution_run", sa.Column("billed_by", sa.Text, nullable=False, server_default="{}"))
    op.create_index("reconciliation_event_by_time", "reconciliation_event", ["state", "at"])


def downgrade() -> None:
    op.drop_index("reconciliation_event_by_time", "reconciliation_event")
    op.drop_column("attribution_run", "billed_by")
    op.drop_table("own_nodes_note")

"""What slurmdbd said of reservations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.db.migrations.append_only import refuse_changes

revision = "v0009"
down_revision = "v0008"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "reservation_pull",
        sa.Column("id", ID, primary_key=True),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_index("reservation_pull_by_month", "reservation_pull", ["month"])
    refuse_changes("reservation_pull")


def downgrade() -> None:
    op.drop_table("reservation_pull")

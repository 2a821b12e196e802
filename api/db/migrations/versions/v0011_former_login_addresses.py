"""Addresses that login nodes no longer have."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0011"
down_revision = "v0010"


def upgrade() -> None:
    op.create_table(
        "login_former_address",
        sa.Column("address", sa.String(255), primary_key=True),
        sa.Column("node", sa.String(128), nullable=False),
        sa.Column("left_at", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("login_former_address")

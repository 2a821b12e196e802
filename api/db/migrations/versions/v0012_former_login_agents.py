"""Agents that were heard of a login node before the present one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0012"
down_revision = "v0011"


def upgrade() -> None:
    op.add_column("login_node", sa.Column("former", sa.String(600), nullable=False, server_default=""))


def downgrade() -> None:
    with op.batch_alter_table("login_node") as table:
        table.drop_column("former")

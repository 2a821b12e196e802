"""Why a session is to end; whom login nodes know as administrators."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0010"
down_revision = "v0009"


def upgrade() -> None:
    op.add_column("login_lease", sa.Column("why", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "login_administrator",
        sa.Column("user", sa.String(64), primary_key=True),
        sa.Column("told_at", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("login_administrator")
    with op.batch_alter_table("login_lease") as table:
        table.drop_column("why")

"""Login nodes whose sshd refuses people."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0008"
down_revision = "v0007"


def upgrade() -> None:
    op.add_column("login_node", sa.Column("closed", sa.Boolean, nullable=False, server_default=sa.false()))


def downgrade() -> None:
    with op.batch_alter_table("login_node") as table:
        table.drop_column("closed")

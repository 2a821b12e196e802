"""What of a reading's unbilled cost ran on which day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0013"
down_revision = "v0012"


def upgrade() -> None:
    op.add_column("burn_reading", sa.Column("days", sa.Text, nullable=False, server_default="{}"))


def downgrade() -> None:
    op.drop_column("burn_reading", "days")

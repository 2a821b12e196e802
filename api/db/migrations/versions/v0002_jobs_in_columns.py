"""Jobs and their costs in columns, entries in pairs."""

from __future__ import annotations

revision = "v0002"
down_revision = "v0001"


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass

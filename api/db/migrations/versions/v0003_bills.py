"""Bills of several kinds."""

from __future__ import annotations

revision = "v0003"
down_revision = "v0002"


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass

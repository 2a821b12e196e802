"""Who may do what, and who did."""

from __future__ import annotations

revision = "v0005"
down_revision = "v0004"


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass

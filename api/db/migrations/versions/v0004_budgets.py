"""Budgets, alerts and enforcement."""

from __future__ import annotations

revision = "v0004"
down_revision = "v0003"


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass

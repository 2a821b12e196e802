"""Login nodes: what they told, who is on them, which are drained."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.db.migrations.append_only import refuse_changes

revision = "v0007"
down_revision = "v0006"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _nodes()
    _leases()
    op.create_table(
        "login_drain",
        sa.Column("id", ID, primary_key=True),
        sa.Column("node", sa.String(128), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("draining", sa.Boolean, nullable=False),
        sa.Column("why", sa.String(500), nullable=False),
        sa.Column("principal", sa.String(256), nullable=False),
    )
    op.create_index("login_drain_by_node", "login_drain", ["node", "id"])
    refuse_changes("login_drain")


def downgrade() -> None:
    for table in ("login_drain", "login_lease", "login_node"):
        op.drop_table(table)


def _nodes() -> None:
    op.create_table(
        "login_node",
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("address", sa.String(255), nullable=False),
        sa.Column("agent", sa.String(64), nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("heard_at", sa.BigInteger, nullable=False),
        sa.Column("cpus", sa.Integer, nullable=False),
        sa.Column("cpu", sa.Float(53), nullable=False),
        sa.Column("memory", sa.Float(53), nullable=False),
        sa.Column("draining", sa.Boolean, nullable=False),
        sa.Column("unlimited", sa.Boolean, nullable=False),
        sa.Column("drained", sa.Boolean, nullable=False),
        sa.Column("taken", sa.Integer, nullable=False),
    )


def _leases() -> None:
    op.create_table(
        "login_lease",
        sa.Column("id", ID, primary_key=True),
        sa.Column("node", sa.String(128), nullable=False),
        sa.Column("claim", sa.String(128), nullable=False),
        sa.Column("user", sa.String(64), nullable=False),
        sa.Column("department", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("origin", sa.String(255), nullable=False),
        sa.Column("opened_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("administrator", sa.Boolean, nullable=False),
        sa.Column("seen", sa.Boolean, nullable=False),
        sa.Column("audited", sa.Boolean, nullable=False),
        sa.Column("ending", sa.Boolean, nullable=False),
        sa.UniqueConstraint("node", "claim"),
    )
    for what in ("user", "department"):
        op.create_index(f"login_lease_by_{what}", "login_lease", [what])
    op.create_index("login_lease_by_expiry", "login_lease", ["expires_at"])

"""Bills of several kinds: a day's rows are one document; each look at a bill is recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from alembic import op

from api.db.exact import Exact
from api.db.migrations.append_only import refuse_changes
from hpctools.budget.bill import BillRow
from hpctools.budget.bill_table import digest, frame_of, in_order, pack, rows_of, unpack
from hpctools.budget.money import total

revision = "v0003"
down_revision = "v0002"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_AT_ONCE = 1000


def upgrade() -> None:
    days = list(_old_days())
    op.drop_table("bill_item")
    op.drop_table("bill_day")
    _new_tables()
    _fill("bill_day", days)
    for table in ("bill_day", "bill_pull"):
        refuse_changes(table)


def downgrade() -> None:
    days, items = _taken_apart()
    op.drop_table("bill_pull")
    op.drop_table("bill_day")
    _old_tables()
    _fill("bill_day", days)
    _fill("bill_item", items)
    for table in ("bill_day", "bill_item"):
        refuse_changes(table)


def _new_tables() -> None:
    op.create_table(
        "bill_day",
        sa.Column("id", ID, primary_key=True),
        sa.Column("source", sa.String(64), nullable=False),
        sa.Column("metric", sa.String(32), nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("fetched_at", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("row_count", sa.Integer, nullable=False),
        sa.Column("estimated", sa.Boolean, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("source", "metric", "day", "version"),
    )
    op.create_table(
        "bill_pull",
        sa.Column("id", ID, primary_key=True),
        sa.Column("source", sa.String(64), nullable=False),
        sa.Column("metric", sa.String(32), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("pulled_at", sa.BigInteger, nullable=False),
        sa.Column("row_count", sa.Integer, nullable=False),
        sa.Column("changed_days", sa.Integer, nullable=False),
    )
    op.create_index("bill_pull_by_month", "bill_pull", ["source", "metric", "month"])


def _old_tables() -> None:
    op.create_table(
        "bill_day",
        sa.Column("id", ID, primary_key=True),
        sa.Column("source", sa.String(64), nullable=False),
        sa.Column("metric", sa.String(32), nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("fetched_at", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.UniqueConstraint("source", "metric", "day", "version"),
    )
    op.create_table(
        "bill_item",
        sa.Column("id", ID, primary_key=True),
        sa.Column("bill_day_id", ID, sa.ForeignKey("bill_day.id"), nullable=False),
        sa.Column("node_group", sa.String(256), nullable=False),
        sa.Column("usage", sa.String(256), nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("amount", Exact, nullable=False),
        sa.Column("node_hours", Exact, nullable=False),
        sa.Column("estimated", sa.Boolean, nullable=False),
        sa.UniqueConstraint("bill_day_id", "node_group", "usage", "currency"),
    )


def _table(name: str) -> sa.Table:
    return sa.Table(name, sa.MetaData(), autoload_with=op.get_bind())


def _rows(name: str) -> Iterator[dict[str, Any]]:
    table = _table(name)
    for row in op.get_bind().execute(sa.select(table).order_by(table.c.id)):
        yield dict(row._mapping)


def _old_days() -> Iterator[dict[str, Any]]:
    items: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for item in _rows("bill_item"):
        items[item["bill_day_id"]].append(item)
    for day in _rows("bill_day"):
        rows = [_row(day, item) for item in items[day["id"]]]
        frame = in_order(frame_of(rows))
        yield day | {
            "digest": digest(frame),
            "row_count": len(rows),
            "estimated": any(row.estimated for row in rows),
            "content": pack(frame),
        }


def _row(day: dict[str, Any], item: dict[str, Any]) -> BillRow:
    return BillRow(
        source=day["source"],
        day=day["day"],
        node_group=item["node_group"],
        usage=item["usage"],
        metric=day["metric"],
        currency=item["currency"],
        amount=Decimal(item["amount"]),
        node_hours=Decimal(item["node_hours"]),
        estimated=item["estimated"],
    )


def _taken_apart() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Days, and their rows as far as the old tables hold them: what these cannot tell apart is added up."""
    days, items = [], []
    for day in _rows("bill_day"):
        days.append({key: day[key] for key in ("id", "source", "metric", "day", "version", "fetched_at")})
        days[-1]["digest"] = day["digest"]
        groups: defaultdict[tuple[str, str, str], list[BillRow]] = defaultdict(list)
        for row in rows_of(unpack(day["content"])):
            groups[row.node_group, row.usage, row.currency].append(row)
        items += [_item(day["id"], key, rows) for key, rows in groups.items()]
    return days, [{"id": number} | item for number, item in enumerate(items, 1)]


def _item(day: int, key: tuple[str, str, str], rows: Sequence[BillRow]) -> dict[str, Any]:
    node_group, usage, currency = key
    return {
        "bill_day_id": day,
        "node_group": node_group,
        "usage": usage,
        "currency": currency,
        "amount": f"{total(row.amount for row in rows):f}",
        "node_hours": f"{total(row.node_hours for row in rows):f}",
        "estimated": any(row.estimated for row in rows),
    }


def _fill(name: str, rows: Sequence[dict[str, Any]]) -> None:
    for first in range(0, len(rows), _AT_ONCE):
        op.bulk_insert(_table(name), list(rows[first : first + _AT_ONCE]))
    if rows and op.get_bind().dialect.name == "postgresql":
        # Rows that bring their number do not advance the sequence that numbers later ones.
        last = rows[-1]["id"]
        op.execute(sa.select(sa.func.setval(sa.func.pg_get_serial_sequence(name, "id"), last)))

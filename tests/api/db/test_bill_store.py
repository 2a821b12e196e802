from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, text

from api.db.bill_store import (
    Pulled,
    append_bill,
    append_pulled,
    current_bill,
    current_frame,
    known_months,
)
from api.db.engine import connect, reading, writing
from api.db.migrate import downgrade, upgrade
from hpctools.budget.bill import BillRow
from hpctools.budget.bill_table import frame_of, rows_of
from hpctools.budget.month import Month
from hpctools.budget.pulling import MonthKnown
from hpctools.errors import BudgetError

NOVEMBER = Month(2026, 11)
METRIC = "NetAmortizedCost"


def row(day: int = 1, amount: str = "1.5", **changes: Any) -> BillRow:
    values: dict[str, Any] = {
        "source": "aws-cur",
        "day": date(2026, 11, day),
        "node_group": "big",
        "usage": "USE1-Cluster:ml.p4d.24xlarge",
        "metric": METRIC,
        "currency": "USD",
        "amount": Decimal(amount),
        "node_hours": Decimal("24"),
        "service": "AmazonSageMaker",
        "charge": "usage",
        "resource": "i-0abc",
        "capacity": "reserved",
        "billing_account": "123456789012",
        "invoice": "EUINV26-1",
        "cluster": "uni",
    }
    return BillRow(**values | changes)


def store(engine: Engine, rows: list[BillRow], at: int = 1, source: str = "aws-cur") -> int:
    with writing(engine) as session:
        return append_pulled(session, Pulled(source, METRIC, NOVEMBER, frame_of(rows)), at)


def current(engine: Engine, *sources: str) -> list[BillRow]:
    with reading(engine) as session:
        return current_bill(session, sources or "aws-cur", METRIC, NOVEMBER)


def versions(engine: Engine) -> list[tuple[int, int, int]]:
    with engine.connect() as connection:
        query = "SELECT version, row_count, fetched_at FROM bill_day ORDER BY day, version"
        return [tuple(found) for found in connection.execute(text(query))]


def test_rows_come_back_as_they_were(engine: Engine) -> None:
    rows = [row(2, "-0.0000000001", charge="credit", invoice="", resource="=1+1"), row(1, "12345678901.25")]
    assert store(engine, rows) == 2
    assert current(engine) == sorted(rows)
    with reading(engine) as session:
        assert rows_of(current_frame(session, "aws-cur", METRIC, NOVEMBER)) == sorted(rows)


def test_the_same_rows_in_another_order_change_nothing(engine: Engine) -> None:
    rows = [row(1, "1"), row(1, "2"), row(2, "3")]
    assert [store(engine, rows, 1), store(engine, rows[::-1], 2)] == [2, 0]
    assert versions(engine) == [(1, 2, 1), (1, 1, 1)]


def test_a_restated_day_is_a_new_version_and_the_old_one_stays(engine: Engine) -> None:
    store(engine, [row(1, "1"), row(2, "2")])
    assert store(engine, [row(1, "1"), row(2, "1.99")], 90 * 86400) == 1
    assert versions(engine) == [(1, 1, 1), (1, 1, 1), (2, 1, 90 * 86400)]
    assert [each.amount for each in current(engine)] == [Decimal(1), Decimal("1.99")]


@pytest.mark.parametrize("change", [{"invoice": "INV-1"}, {"charge": "refund"}, {"capacity": "spot"}])
def test_what_is_said_of_the_money_is_part_of_the_version(engine: Engine, change: dict[str, Any]) -> None:
    store(engine, [row()])
    assert store(engine, [replace(row(), **change)], 2) == 1


def test_a_day_that_vanished_and_came_back(engine: Engine) -> None:
    store(engine, [row(1), row(2)], 1)
    assert store(engine, [row(1)], 2) == 1
    assert current(engine) == [row(1)]
    assert store(engine, [row(1)], 3) == 0
    assert store(engine, [row(1), row(2)], 4) == 1
    assert current(engine) == [row(1), row(2)]


def test_sources_are_kept_apart_and_read_together(engine: Engine) -> None:
    card = row(3, "7", source="rate-card", node_group="own")
    store(engine, [row(1)])
    store(engine, [card], source="rate-card")
    assert (current(engine), current(engine, "rate-card")) == ([row(1)], [card])
    assert current(engine, "aws-cur", "rate-card") == [row(1), card]


@pytest.mark.parametrize(
    "change", [{"day": date(2026, 10, 31)}, {"day": date(2026, 12, 1)}, {"source": "x"}, {"metric": "x"}]
)
def test_rows_of_something_else_are_refused(engine: Engine, change: dict[str, Any]) -> None:
    with pytest.raises(BudgetError, match="to a question about 2026-11"):
        store(engine, [row(), replace(row(), **change)])
    assert versions(engine) == []


def test_what_is_known_of_a_month(engine: Engine) -> None:
    def known() -> dict[Month, MonthKnown]:
        with reading(engine) as session:
            return known_months(session, "aws-cur", METRIC)

    assert known() == {}
    store(engine, [], 10)
    assert known() == {NOVEMBER: MonthKnown(10, estimated=True)}
    store(engine, [row(1), row(2, invoice="", estimated=True)], 20)
    assert known() == {NOVEMBER: MonthKnown(20, estimated=True)}
    store(engine, [row(1), row(2)], 30)
    assert known() == {NOVEMBER: MonthKnown(30, estimated=False)}
    store(engine, [row(1), row(2)], 40)
    assert known() == {NOVEMBER: MonthKnown(40, estimated=False)}


def test_rows_without_columns(engine: Engine) -> None:
    with writing(engine) as session:
        assert append_bill(session, "aws-cur", METRIC, NOVEMBER, [row()], 5) == 1
    assert current(engine) == [row()]


OLD_DAY = (
    "INSERT INTO bill_day VALUES (1, 'aws-ce', 'NetAmortizedCost', '2026-11-03', {version}, 5, '{digest}')"
)
OLD_ITEM = "INSERT INTO bill_item VALUES ({id}, 1, '{group}', 'x', 'USD', '{amount}', '24', {estimated})"


def test_bills_of_older_tables_stay_and_go_back(database_url: str) -> None:
    engine = connect(database_url)
    upgrade(engine)
    downgrade(engine, "v0002")
    false, true = ("false", "true") if engine.dialect.name == "postgresql" else ("0", "1")
    with engine.begin() as connection:
        connection.execute(text(OLD_DAY.format(version=1, digest="old")))
        connection.execute(
            text(OLD_ITEM.format(id=1, group="a", amount="0.1234567890123456", estimated=true))
        )
        connection.execute(text(OLD_ITEM.format(id=2, group="", amount="-3", estimated=false)))
    upgrade(engine)
    old = BillRow("aws-ce", date(2026, 11, 3), "", "x", METRIC, "USD", Decimal(-3), Decimal(24))
    rows = [old, replace(old, node_group="a", amount=Decimal("0.1234567890123456"), estimated=True)]
    assert current(engine, "aws-ce") == rows
    # The next pull of the same bill finds nothing new.
    assert store(engine, rows, 6, source="aws-ce") == 0
    assert store(engine, [*rows, replace(rows[0], resource="r")], 7, source="aws-ce") == 1
    downgrade(engine, "v0002")
    with engine.connect() as connection:
        kept = connection.execute(text("SELECT bill_day_id, node_group, amount FROM bill_item ORDER BY id"))
        found = [(day, group, Decimal(amount)) for day, group, amount in kept]
    assert [group for _, group, _ in found] == ["", "a", "", "a"]
    assert [amount for _, _, amount in found] == [
        Decimal(-3),
        rows[1].amount,
        Decimal(-6),
        rows[1].amount,
    ]
    upgrade(engine)
    assert len(current(engine, "aws-ce")) == 2
    assert store(engine, rows[:1], 8, source="aws-ce") == 1
    engine.dispose()

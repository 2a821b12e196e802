from __future__ import annotations

from datetime import date
from decimal import Decimal

from sqlalchemy import Engine, select

from api.db.engine import reading, writing
from api.db.exact import exact_sum
from api.db.models import BillDay, BillItem

# What binary floats or 28 digits would get wrong.
AMOUNTS = ["0.1", "0.2", "-0.0000000000000001", "123456789012345678901234567.0000000001", "1E+3"]


def test_decimals_come_back_as_they_went_in_and_sum_exactly(engine: Engine) -> None:
    with writing(engine) as session:
        day = BillDay(source="x", metric="m", day=date(2026, 1, 1), version=1, fetched_at=1, digest="d")
        session.add(day)
        session.flush()
        for number, amount in enumerate(AMOUNTS):
            session.add(
                BillItem(
                    bill_day_id=day.id,
                    node_group="",
                    usage=str(number),
                    currency="USD",
                    amount=Decimal(amount),
                    node_hours=Decimal(0),
                    estimated=False,
                )
            )
    with reading(engine) as session:
        read = list(session.scalars(select(BillItem.amount).order_by(BillItem.usage)))
        assert [f"{amount:f}" for amount in read] == [f"{Decimal(amount):f}" for amount in AMOUNTS]
        total = session.scalar(select(exact_sum(BillItem.amount)))
        assert f"{total:f}" == "123456789012345678901235567.3000000000999999"
        assert session.scalar(select(exact_sum(BillItem.amount)).where(BillItem.usage == "none")) in (None, 0)

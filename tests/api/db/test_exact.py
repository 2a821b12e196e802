from __future__ import annotations

from decimal import Decimal

from sqlalchemy import Column, Engine, Integer, MetaData, Table, insert, select

from api.db.engine import reading, writing
from api.db.exact import Exact, exact_sum

# What binary floats or 28 digits would get wrong.
AMOUNTS = ["0.1", "0.2", "-0.0000000000000001", "123456789012345678901234567.0000000001", "1E+3"]

MONEY = Table("money", MetaData(), Column("id", Integer, primary_key=True), Column("amount", Exact))


def test_decimals_come_back_as_they_went_in_and_sum_exactly(engine: Engine) -> None:
    with writing(engine) as session:
        MONEY.create(session.connection())
        session.execute(insert(MONEY), [{"amount": Decimal(amount)} for amount in AMOUNTS])
    with reading(engine) as session:
        read = list(session.scalars(select(MONEY.c.amount).order_by(MONEY.c.id)))
        assert [f"{amount:f}" for amount in read] == [f"{Decimal(amount):f}" for amount in AMOUNTS]
        total = session.scalar(select(exact_sum(MONEY.c.amount)))
        assert f"{total:f}" == "123456789012345678901235567.3000000000999999"
        assert session.scalar(select(exact_sum(MONEY.c.amount)).where(MONEY.c.id < 0)) in (None, 0)

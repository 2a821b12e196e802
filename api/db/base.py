"""What all tables share."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer
from sqlalchemy.orm import DeclarativeBase

# SQLite numbers rows itself only in a column that is called INTEGER.
Id = BigInteger().with_variant(Integer(), "sqlite")


class Base(DeclarativeBase):
    """All tables."""

"""Bill days in the store: append what changed, read what is current."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from datetime import date

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.db.models import BillDay, BillItem
from hpctools.budget.bill import BillRow
from hpctools.budget.month import Month


def append_bill(
    session: Session, source: str, metric: str, month: Month, rows: Iterable[BillRow], fetched_at: int
) -> int:
    """Store the days of a month that differ from what is current; return how many.

    A day that was there and is no longer gets a version without rows.
    """
    by_day: defaultdict[date, list[BillRow]] = defaultdict(list)
    for row in sorted(rows):
        by_day[row.day].append(row)
    known = {day.day: day for day in _current_days(session, source, metric, month)}
    changed = 0
    for day in sorted({*by_day, *known}):
        digest = _digest(by_day[day])
        if day not in known or known[day].digest != digest:
            version = known[day].version + 1 if day in known else 1
            record = BillDay(
                source=source, metric=metric, day=day, version=version, fetched_at=fetched_at, digest=digest
            )
            _insert(session, record, by_day[day])
            changed += 1
    return changed


def current_bill(session: Session, source: str, metric: str, month: Month) -> list[BillRow]:
    """The rows of a month as they were fetched last."""
    days = {day.id: day for day in _current_days(session, source, metric, month)}
    items = session.scalars(select(BillItem).where(BillItem.bill_day_id.in_(days)))
    return [
        BillRow(
            source=source,
            day=days[item.bill_day_id].day,
            node_group=item.node_group,
            usage=item.usage,
            metric=metric,
            currency=item.currency,
            amount=item.amount,
            node_hours=item.node_hours,
            estimated=item.estimated,
        )
        for item in items
    ]


def _current_days(session: Session, source: str, metric: str, month: Month) -> list[BillDay]:
    last = func.max(BillDay.version).over(partition_by=BillDay.day)
    of_month = (
        select(BillDay.id, BillDay.version, last.label("last"))
        .where(BillDay.source == source, BillDay.metric == metric)
        .where(BillDay.day >= month.start, BillDay.day < month.end)
        .subquery()
    )
    newest = select(of_month.c.id).where(of_month.c.version == of_month.c.last)
    return list(session.scalars(select(BillDay).where(BillDay.id.in_(newest))))


def _insert(session: Session, record: BillDay, rows: Iterable[BillRow]) -> None:
    session.add(record)
    session.flush()
    session.add_all(
        BillItem(
            bill_day_id=record.id,
            node_group=row.node_group,
            usage=row.usage,
            currency=row.currency,
            amount=row.amount,
            node_hours=row.node_hours,
            estimated=row.estimated,
        )
        for row in rows
    )


def _digest(rows: Iterable[BillRow]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        fields = (
            row.node_group,
            row.usage,
            row.currency,
            str(row.amount),
            str(row.node_hours),
            row.estimated,
        )
        digest.update(repr(fields).encode())
    return digest.hexdigest()

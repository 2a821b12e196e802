"""Bills in the store: append the days that changed, read what is current."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date

import polars as pl
from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from api.db.bill_models import BillDay, BillPull
from api.db.models import OwnNodesNote
from hpctools.budget.bill import BillRow
from hpctools.budget.bill_table import SCHEMA, digest, frame_of, in_order, pack, rows_of, unpack
from hpctools.budget.month import Month
from hpctools.budget.pulling import MonthKnown
from hpctools.budget.rate_card import SOURCE as OWN_NODES
from hpctools.errors import BudgetError


@dataclass(frozen=True)
class Pulled:
    """What a source had for a month.

    Attributes:
        table: its rows (`bill_table.SCHEMA`), of that source, measure and month only.
    """

    source: str
    metric: str
    month: Month
    table: pl.DataFrame


def append_bill(
    session: Session,
    source: str,
    metric: str,
    month: Month,
    rows: Iterable[BillRow],
    fetched_at: int,
) -> int:
    """Store the days of a month that differ from what is current; return how many."""
    return append_pulled(session, Pulled(source, metric, month, frame_of(rows)), fetched_at)


def append_pulled(session: Session, pulled: Pulled, fetched_at: int) -> int:
    """Store the days of a month that differ from what is current; return how many.

    A day that was there and is no longer gets a version without rows. The look itself is recorded as well.

    Raises:
        BudgetError: it has rows of another source, measure or month.
    """
    _check(pulled)
    days = {day: part for (day,), part in in_order(pulled.table).group_by("day", maintain_order=True)}
    known = {day.day: day for day in _current_days(session, [pulled.source], pulled.metric, pulled.month)}
    changed = []
    for day in sorted({*days, *known}):
        table = days.get(day, pulled.table.clear())
        fingerprint = digest(table)
        if day not in known or known[day].digest != fingerprint:
            version = known[day].version + 1 if day in known else 1
            changed.append(_day(pulled, day, version, fetched_at, table, fingerprint))
    if changed:
        session.execute(insert(BillDay), changed)
    session.execute(insert(BillPull), [_pull(pulled, fetched_at, len(changed))])
    return len(changed)


def current_bill(session: Session, sources: str | Sequence[str], metric: str, month: Month) -> list[BillRow]:
    """The rows of a month as they were pulled last, of one source or of several."""
    return rows_of(current_frame(session, sources, metric, month))


def current_frame(session: Session, sources: str | Sequence[str], metric: str, month: Month) -> pl.DataFrame:
    """The same as columns (`bill_table.SCHEMA`), in the one order of `bill_table.in_order` day by day."""
    names = [sources] if isinstance(sources, str) else list(sources)
    ids = [day.id for day in _current_days(session, names, metric, month)]
    query = (
        select(BillDay.content)
        .where(BillDay.id.in_(ids), BillDay.row_count > 0)
        .order_by(BillDay.source, BillDay.day)
    )
    tables = [unpack(content) for content in session.scalars(query)]
    return pl.concat(tables) if tables else pl.DataFrame(schema=SCHEMA)


def counted(session: Session, sources: Sequence[str], metric: str, month: Month) -> tuple[str, ...]:
    """The sources that a month's bill is made of.

    They are the site's, and own nodes where they had a price, as far as it is noted. Until one of its
    providers has told a month, what former sources told of it last counts as well: that the bill is read
    elsewhere since takes nothing back.

    Args:
        sources: that the site has.
    """
    providers = {*sources} - {OWN_NODES}
    noted = OWN_NODES not in sources and session.scalar(select(OwnNodesNote.id).limit(1)) is not None
    if noted and has_told(session, {OWN_NODES}, metric, month):
        sources = (*sources, OWN_NODES)
    if not providers or has_told(session, providers, metric, month):
        return tuple(sources)
    others = (BillPull.metric == metric, BillPull.month == str(month), BillPull.source.not_in(sources))
    last = session.scalar(select(BillPull.pulled_at).where(*others).order_by(BillPull.id.desc()).limit(1))
    former = session.scalars(select(BillPull.source).where(*others, BillPull.pulled_at == last).distinct())
    return (*sources, *sorted(former))


def has_told(session: Session, sources: Collection[str], metric: str, month: Month) -> bool:
    """Whether one of some sources had a bill of a month, be it one of nothing."""
    pulls = select(BillPull.id).where(BillPull.metric == metric, BillPull.month == str(month))
    return session.scalar(pulls.where(BillPull.source.in_(sources)).limit(1)) is not None


def is_awaited(session: Session, counted: Collection[str], metric: str, month: Month) -> bool:
    """Whether none of the providers among the sources that are counted has told a month."""
    providers = {*counted} - {OWN_NODES}
    return bool(providers) and not has_told(session, providers, metric, month)


def known_months(session: Session, source: str, metric: str) -> dict[Month, MonthKnown]:
    """Every month that was looked at, by what is known of it."""
    last = select(func.max(BillPull.id)).where(BillPull.source == source, BillPull.metric == metric)
    pulls = session.scalars(select(BillPull).where(BillPull.id.in_(last.group_by(BillPull.month))))
    return {
        Month.parse(pull.month): _known(session, pull) for pull in sorted(pulls, key=lambda pull: pull.month)
    }


def _known(session: Session, pull: BillPull) -> MonthKnown:
    days = [
        day
        for day in _current_days(session, [pull.source], pull.metric, Month.parse(pull.month))
        if day.row_count
    ]
    return MonthKnown(
        pulled_at=pull.pulled_at,
        estimated=not days or any(day.estimated for day in days),
    )


@dataclass(frozen=True)
class _Day:
    """A version of a day, without its rows."""

    id: int
    source: str
    day: date
    version: int
    digest: str
    row_count: int
    estimated: bool


def _current_days(session: Session, sources: Collection[str], metric: str, month: Month) -> list[_Day]:
    last = func.max(BillDay.version).over(partition_by=(BillDay.source, BillDay.day))
    of_month = (
        select(
            *(
                BillDay.id,
                BillDay.source,
                BillDay.day,
                BillDay.version,
                BillDay.digest,
                BillDay.row_count,
                BillDay.estimated,
            ),
            last.label("last"),
        )
        .where(BillDay.source.in_(sources), BillDay.metric == metric)
        .where(BillDay.day >= month.start, BillDay.day < month.end)
        .subquery()
    )
    newest = select(of_month).where(of_month.c.version == of_month.c.last)
    return [_Day(*row[:-1]) for row in session.execute(newest)]


def _check(pulled: Pulled) -> None:
    table = pulled.table
    strange = table.filter(
        (pl.col("source") != pulled.source)
        | (pl.col("metric") != pulled.metric)
        | (pl.col("day") < pulled.month.start)
        | (pl.col("day") >= pulled.month.end)
    )
    if strange.height:
        row = strange.row(0, named=True)
        raise BudgetError(
            f"{pulled.source} answered {row['day']} to a question about {pulled.month}: "
            f"a row of {row['source']}, measured as {row['metric']}",
            "nothing was stored",
        )


def _day(
    pulled: Pulled, day: date, version: int, fetched_at: int, table: pl.DataFrame, fingerprint: str
) -> dict[str, object]:
    return {
        "source": pulled.source,
        "metric": pulled.metric,
        "day": day,
        "version": version,
        "fetched_at": fetched_at,
        "digest": fingerprint,
        "row_count": table.height,
        "estimated": bool(table["estimated"].any()),
        "content": pack(table),
    }


def _pull(pulled: Pulled, at: int, changed: int) -> dict[str, object]:
    return {
        "source": pulled.source,
        "metric": pulled.metric,
        "month": str(pulled.month),
        "pulled_at": at,
        "row_count": pulled.table.height,
        "changed_days": changed,
    }

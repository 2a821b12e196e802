"""Jobs in the store: append what changed, read what is current."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from io import BytesIO
from typing import Any

import polars as pl
from sqlalchemy import func, insert, or_, select
from sqlalchemy.orm import Session

from api.db.models import JobBatch, JobPull
from hpctools.budget.jobs import JobWindow
from hpctools.budget.month import DAY_SECONDS, Month, day_of, day_start
from hpctools.slurm.accounting_table import COLUMNS, TEXTS, schema

_KEY = ("cluster", "dbindex")
# Jobs whose last state stays in memory while a month is taken in.
_MOST_REMEMBERED = 1_000_000
_DOCUMENTS_AT_ONCE = 16
_REST = tuple(name for name in COLUMNS if name not in _KEY)


class JobIntake:
    """Stores windows of jobs one after the other; remembers what is known of the days that it saw last."""

    def __init__(self) -> None:
        self._known: OrderedDict[date, pl.DataFrame] = OrderedDict()
        self._head: int | None = None

    def append(self, session: Session, window: JobWindow, seen_at: int) -> int:
        """Store the jobs of a window that started and are new or changed; return how many.

        Nothing is read when the answer is the same as the last to the same window. A job that was seen later
        already (in another month's run) stays as it is.
        """
        last = select(JobPull.digest).where(JobPull.first == window.first, JobPull.end == window.end)
        if session.scalar(last.order_by(JobPull.id.desc()).limit(1)) == window.digest:
            return 0
        self._forget_if_others_stored(session)
        started = window.table().filter(pl.col("start").is_not_null()).unique(list(_KEY), keep="last")
        by_day = started.group_by((pl.col("submitted") // DAY_SECONDS).alias("day"))
        parts = sorted((int(str(day)), part) for (day,), part in by_day)
        rows = [row for day, part in parts if (row := self._row(session, day, part, seen_at))]
        if rows:
            session.execute(insert(JobBatch), rows)
        pull = {"first": window.first, "end": window.end, "seen_at": seen_at, "digest": window.digest}
        session.execute(insert(JobPull), [pull])
        self._head = _head(session)
        return sum(row["row_count"] for row in rows)

    def _forget_if_others_stored(self, session: Session) -> None:
        if _head(session) != self._head:
            self._known.clear()

    def _row(self, session: Session, number: int, part: pl.DataFrame, seen_at: int) -> dict[str, Any]:
        """What of a day's jobs is to be stored; nothing when all of it is known."""
        day = day_of(number * DAY_SECONDS)
        known = self._known.pop(day) if day in self._known else _current(session, day)
        changed = _changed(known, part, seen_at)
        if changed.is_empty():
            self._remember(day, known)
            return {}
        new = changed.select(*COLUMNS, seen=pl.lit(seen_at, dtype=pl.Int64))
        self._remember(day, pl.concat([known, new]).unique(list(_KEY), keep="last", maintain_order=True))
        return _batch_of(changed, number, seen_at)

    def _remember(self, day: date, known: pl.DataFrame) -> None:
        self._known[day] = known
        while sum(table.height for table in self._known.values()) > _MOST_REMEMBERED and len(self._known) > 1:
            self._known.popitem(last=False)


def _head(session: Session) -> int | None:
    return session.scalar(select(func.max(JobBatch.id)))


@dataclass(frozen=True)
class BatchInfo:
    """A batch without its rows; see `JobBatch`."""

    id: int
    day: date
    first_start: int
    until: int | None
    digest: str

    def touches(self, begin: int, end: int) -> bool:
        """Whether it changed anything of a time, in Unix seconds."""
        return self.first_start < end and (self.until is None or self.until > begin)


def batches(session: Session, month: Month, before: int = 0) -> list[BatchInfo]:
    """What changed anything of a month, in the order it was stored.

    Args:
        before: seconds before the month that count as well.
    """
    columns = (JobBatch.id, JobBatch.day, JobBatch.first_start, JobBatch.until, JobBatch.digest)
    query = (
        select(*columns)
        .where(JobBatch.first_start < day_start(month.end))
        .where(or_(JobBatch.until.is_(None), JobBatch.until > day_start(month.start) - before))
        .order_by(JobBatch.id)
    )
    return [BatchInfo(*row) for row in session.execute(query)]


class JobsByDay:
    """The current jobs of a month day after day, never more of them in memory than a day needs.

    Args:
        infos: `batches` of the month.
    """

    def __init__(self, session: Session, infos: Iterable[BatchInfo]) -> None:
        self._session = session
        self._waiting: dict[date, int] = {}
        for info in infos:
            self._waiting[info.day] = min(info.first_start, self._waiting.get(info.day, info.first_start))
        self._held = pl.DataFrame(schema=schema())

    def of(self, day: date) -> pl.DataFrame:
        """All jobs that ran on a day; days are asked for in ascending order."""
        begin = day_start(day)
        end = begin + DAY_SECONDS
        due = sorted(submitted for submitted, start in self._waiting.items() if start < end)
        for submitted in due:
            del self._waiting[submitted]
        loaded = [_current(self._session, submitted).drop("seen") for submitted in due]
        later = pl.col("end").is_null() | (pl.col("end") > begin)
        self._held = pl.concat([self._held, *loaded]).filter(later)
        return self._held.filter(pl.col("start") < end)


def current_jobs(session: Session, month: Month) -> pl.DataFrame:
    """The newest version of every job that ran at some time of a month."""
    days = sorted({info.day for info in batches(session, month)})
    loaded = [_current(session, day).drop("seen") for day in days]
    begin, end = day_start(month.start), day_start(month.end)
    ran = (pl.col("start") < end) & (pl.col("end").is_null() | (pl.col("end") > begin))
    return pl.concat([pl.DataFrame(schema=schema()), *loaded]).filter(ran)


def jobs_known(session: Session, begin: int, end: int, seen: int, wanted: pl.Expr) -> pl.DataFrame:
    """Jobs that ran at some time, as they were known at a moment: columns of `JobRecord`.

    Args:
        begin, end: Unix seconds.
        seen: Unix seconds; what was seen later does not count.
        wanted: which, by what of a job does not change.
    """
    days = (
        select(JobBatch.day)
        .where(JobBatch.first_start < end, JobBatch.seen_at <= seen)
        .where(or_(JobBatch.until.is_(None), JobBatch.until > begin))
    )
    query = (
        select(JobBatch.content, JobBatch.seen_at)
        .where(JobBatch.day.in_(days), JobBatch.seen_at <= seen)
        .order_by(JobBatch.id)
    )
    stored = session.execute(query).yield_per(_DOCUMENTS_AT_ONCE)
    ran = (pl.col("start") < end) & (pl.col("end").is_null() | (pl.col("end") > begin))
    return newest(((bytes(content), at) for content, at in stored), wanted).drop("seen").filter(ran)


def batch(table: pl.DataFrame, day: int, seen_at: int, **time: int | None) -> dict[str, Any]:
    """A row of `job_batch`.

    Args:
        day: of submission, days since 1970.
        time: `first_start` and `until`, where they are not those of the table's own jobs.
    """
    content = _pack(table)
    own = {
        "first_start": table["start"].min(),
        "until": None if table["end"].null_count() else table["end"].max(),
    }
    return (
        own
        | time
        | {
            "day": day_of(day * DAY_SECONDS),
            "seen_at": seen_at,
            "row_count": table.height,
            "digest": hashlib.sha256(content).hexdigest(),
            "content": content,
        }
    )


def newest(stored: Iterable[tuple[bytes, int]], wanted: pl.Expr | None = None) -> pl.DataFrame:
    """The newest row of each job out of batches in the order of the store: content, and when it was seen.

    Args:
        wanted: only these, by what of a job does not change.
    """
    empty = pl.DataFrame(schema=schema() | {"seen": pl.Int64()})
    tables = [
        _table(content, wanted).select(*COLUMNS, seen=pl.lit(seen, dtype=pl.Int64))
        for content, seen in stored
    ]
    return pl.concat([empty, *tables]).unique(list(_KEY), keep="last", maintain_order=True)


def _table(content: bytes, wanted: pl.Expr | None) -> pl.DataFrame:
    table = pl.read_parquet(BytesIO(content))
    # Documents of earlier releases lack what these did not ask for.
    table = table.with_columns(pl.lit("").alias(name) for name in TEXTS if name not in table.columns)
    return table if wanted is None else table.filter(wanted)


def _changed(known: pl.DataFrame, part: pl.DataFrame, seen_at: int) -> pl.DataFrame:
    """The jobs that are new or differ from what is known, beside it (`..._known`)."""
    both = part.join(known, on=list(_KEY), how="left", suffix="_known")
    differs = pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_known")) for name in _REST)
    return both.filter(pl.col("seen").is_null() | (differs & (pl.col("seen") <= seen_at))).sort(_KEY)


def _batch_of(changed: pl.DataFrame, day: int, seen_at: int) -> dict[str, Any]:
    table = changed.select(COLUMNS)
    # A job that ran when it was known before was counted until then at most.
    before = changed.filter(pl.col("seen").is_not_null())["end_known"].fill_null(seen_at)
    ends = [*table["end"].drop_nulls().to_list(), *before.to_list()]
    starts = [*table["start"].to_list(), *changed["start_known"].drop_nulls().to_list()]
    until = None if table["end"].null_count() else max(ends)
    return batch(table, day, seen_at, first_start=min(starts), until=until)


def _current(session: Session, day: date) -> pl.DataFrame:
    """The newest row of each job that was submitted on a day, with when it was seen."""
    query = select(JobBatch.content, JobBatch.seen_at).where(JobBatch.day == day).order_by(JobBatch.id)
    return newest((bytes(content), seen) for content, seen in session.execute(query))


def _pack(table: pl.DataFrame) -> bytes:
    buffer = BytesIO()
    table.select(COLUMNS).write_parquet(buffer, compression="zstd", statistics=False)
    return buffer.getvalue()


def jobs_digest(infos: Iterable[BatchInfo], day: date, before: int = 0) -> str:
    """What a day's jobs depend on, as one text.

    Args:
        before: seconds before the day that count as well.
    """
    begin = day_start(day)
    touching = [
        f"{info.id}:{info.digest}" for info in infos if info.touches(begin - before, begin + DAY_SECONDS)
    ]
    return hashlib.sha256(",".join(touching).encode()).hexdigest()

"""Days as runs have divided them, in the store: the newest of each day is what is known."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from io import BytesIO

import polars as pl
from sqlalchemy import Select, func, insert, select
from sqlalchemy.orm import Session

from api.db.models import AttributedDay
from hpctools.budget.attribution import Coverage
from hpctools.budget.attribution_table import CHARGES, JOB_COSTS, DayCosts
from hpctools.budget.month import Month


@dataclass(frozen=True)
class Inputs:
    """What the parts of a day depend on, and nothing else.

    Attributes:
        bill, jobs, policy: digests.
        counted_to: Unix seconds that running jobs and nodes are counted to.
    """

    bill: str
    jobs: str
    policy: str
    counted_to: int

    def reason(self, before: Inputs | None) -> str:
        """What has changed, as entries tell it: `first`, or of `bill`, `jobs`, `policy` and `time`."""
        if before is None:
            return "first"
        pairs = (
            ("bill", self.bill != before.bill),
            ("jobs", self.jobs != before.jobs),
            ("policy", self.policy != before.policy),
            ("time", self.counted_to != before.counted_to),
        )
        return "+".join(name for name, differs in pairs if differs) or "again"


@dataclass(frozen=True)
class KnownDay:
    """A day in the store, without its tables."""

    id: int
    day: date
    inputs: Inputs
    provisional: bool
    costs_digest: str


@dataclass(frozen=True)
class NewDay:
    """A day that was divided just now."""

    inputs: Inputs
    costs: DayCosts

    @property
    def costs_digest(self) -> str:
        """Equal when each job's part is."""
        return costs_digest(self.costs)


def costs_digest(costs: DayCosts) -> str:
    """Equal when each job's part is."""
    digest = hashlib.sha256(f"{costs.places} {costs.provisional}".encode())
    for table in (costs.charges, costs.jobs, costs.use):
        digest.update(table.write_csv().encode())
    return digest.hexdigest()


def known_days(session: Session, month: Month, metric: str, run: int | None = None) -> dict[date, KnownDay]:
    """The newest of each day of a month.

    Args:
        run: the last run that counts; all of them when None.
    """
    columns = (
        AttributedDay.id,
        AttributedDay.day,
        AttributedDay.bill_digest,
        AttributedDay.jobs_digest,
        AttributedDay.policy_digest,
        AttributedDay.counted_to,
        AttributedDay.provisional,
        AttributedDay.costs_digest,
    )
    query = select(*columns).where(AttributedDay.id.in_(_newest(month, metric, run)))
    return {
        row.day: KnownDay(row.id, row.day, Inputs(*row[2:6]), row.provisional, row.costs_digest)
        for row in session.execute(query.order_by(AttributedDay.day))
    }


def append_days(session: Session, run: int, metric: str, days: Mapping[date, NewDay]) -> None:
    """Store what a run has divided."""
    rows = [_row(run, metric, day, new) for day, new in sorted(days.items())]
    if rows:
        session.execute(insert(AttributedDay), rows)


def stored_costs(session: Session, id: int) -> DayCosts:
    """A stored day with its tables."""
    day = session.get_one(AttributedDay, id)
    charges, jobs, use = (unpack(content) for content in (day.charges, day.jobs, day.use))
    return DayCosts(day.places, charges, jobs, use, day.provisional)


def coverage(session: Session, ids: Collection[int]) -> dict[str, Coverage]:
    """How much of each account's use the bill covers, over some stored days."""
    found = session.scalars(select(AttributedDay.use).where(AttributedDay.id.in_(ids)))
    return sum_of([unpack(content) for content in found])


def sum_of(tables: Collection[pl.DataFrame]) -> dict[str, Coverage]:
    """The same over tables of `attribution_table.USE`."""
    billed: defaultdict[str, int] = defaultdict(int)
    used: defaultdict[str, int] = defaultdict(int)
    for table in tables:
        for account, of_bill, of_all in table.iter_rows():
            billed[account] += of_bill
            used[account] += of_all
    return {account: Coverage(billed[account], used[account]) for account in sorted(used)}


def charges_of(session: Session, ids: Collection[int]) -> tuple[pl.DataFrame, int]:
    """The parts of stored days: columns of `CHARGES` and `day`, and the places of `units`."""
    columns = (AttributedDay.day, AttributedDay.places, AttributedDay.charges)
    return _together(session, select(*columns).where(AttributedDay.id.in_(ids)), CHARGES, pl.lit(True))


def job_costs_of(session: Session, ids: Collection[int], wanted: pl.Expr) -> tuple[pl.DataFrame, int]:
    """What jobs cost on stored days: columns of `JOB_COSTS` and `day`, and the places of `units`."""
    columns = (AttributedDay.day, AttributedDay.places, AttributedDay.jobs)
    return _together(session, select(*columns).where(AttributedDay.id.in_(ids)), JOB_COSTS, wanted)


def _together(
    session: Session,
    query: Select[date, int, bytes],
    columns: Mapping[str, type[pl.DataType]],
    wanted: pl.Expr,
) -> tuple[pl.DataFrame, int]:
    found = [(row[0], row[1], row[2]) for row in session.execute(query)]
    places = max((each for _, each, _ in found), default=0)
    tables = [
        unpack(content)
        .filter(wanted)
        .with_columns(
            pl.col("units") * pl.lit(10 ** (places - own), dtype=pl.Int128), day=pl.lit(day, dtype=pl.Date)
        )
        for day, own, content in found
    ]
    empty = pl.DataFrame(schema=dict(columns) | {"day": pl.Date})
    return pl.concat([empty, *tables]), places


def unpack(content: bytes) -> pl.DataFrame:
    """A table of the store."""
    return pl.read_parquet(BytesIO(content))


def _newest(month: Month, metric: str, run: int | None) -> Select[int]:
    ids = select(func.max(AttributedDay.id)).where(
        AttributedDay.metric == metric, AttributedDay.day >= month.start, AttributedDay.day < month.end
    )
    counted = ids if run is None else ids.where(AttributedDay.run_id <= run)
    return counted.group_by(AttributedDay.day)


def _row(run: int, metric: str, day: date, new: NewDay) -> dict[str, object]:
    costs, inputs = new.costs, new.inputs
    return {
        "run_id": run,
        "metric": metric,
        "day": day,
        "bill_digest": inputs.bill,
        "jobs_digest": inputs.jobs,
        "policy_digest": inputs.policy,
        "counted_to": inputs.counted_to,
        "places": costs.places,
        "provisional": costs.provisional,
        "costs_digest": new.costs_digest,
        "charges": _pack(costs.charges),
        "jobs": _pack(costs.jobs),
        "use": _pack(costs.use),
    }


def _pack(table: pl.DataFrame) -> bytes:
    buffer = BytesIO()
    table.write_parquet(buffer, compression="zstd", statistics=False)
    return buffer.getvalue()

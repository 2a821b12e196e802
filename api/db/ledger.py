"""The ledger: what changed is posted as new entries, sums of entries are what is known.

It is kept by double entry: a run's entries and its clearing entries, which stand for the bill, sum to zero.
It has two times: the day that an entry is about, and the run that posted it; with the runs until some moment
it is as it was known then.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import Select, func, insert, select
from sqlalchemy.orm import Session

from api.db.day_store import Inputs, NewDay, append_days, charges_of, coverage, known_days
from api.db.exact import exact_sum
from api.db.models import AttributionRun, ClearingEntry, LedgerEntry, RunCoverage
from hpctools.budget.attribution import Coverage
from hpctools.budget.attribution_table import DayCosts, amount
from hpctools.budget.attribution_table import units as whole_units
from hpctools.budget.money import ZERO, difference, total
from hpctools.budget.month import Month
from hpctools.budget.statement import Knowledge

_KEY = (
    LedgerEntry.day,
    LedgerEntry.node_group,
    LedgerEntry.kind,
    LedgerEntry.account,
    LedgerEntry.capacity,
    LedgerEntry.currency,
)

STATED_BY = ("day", "kind", "account", "user", "currency")
"""What a statement tells charges apart by."""


class EntryKey(NamedTuple):
    """What an entry is about; see `hpctools.budget.attribution.LineKey`."""

    day: date
    node_group: str
    kind: str
    account: str
    capacity: str
    currency: str


def last_run(
    session: Session,
    month: Month,
    metric: str,
    known_on: int | None = None,
    through: int | None = None,
) -> AttributionRun | None:
    """The run that told most of a month; None when there was none.

    Args:
        known_on: Unix seconds; later runs do not count.
        through: number of a run; those after it do not count.
    """
    query = select(AttributionRun).where(AttributionRun.month == str(month), AttributionRun.metric == metric)
    if known_on is not None:
        query = query.where(AttributionRun.as_of <= known_on)
    if through is not None:
        query = query.where(AttributionRun.id <= through)
    return session.scalar(query.order_by(AttributionRun.id.desc()).limit(1))


def knowledge(session: Session, month: Month, metric: str, known_on: int | None = None) -> Knowledge | None:
    """What the last run knew about a month; None when there was none."""
    run = last_run(session, month, metric, known_on)
    if run is None:
        return None
    days = known_days(session, month, metric, run.id)
    ids = [day.id for day in days.values()]
    return Knowledge(
        as_of=run.as_of,
        billed_through=run.billed_through,
        estimated=run.estimated,
        coverage=coverage(session, ids) if ids else _old_coverage(session, run.id),
        billed_by=billed_by(run),
    )


def billed_by(run: AttributionRun) -> dict[str, date]:
    """The last day on which each source of a run's bill had nodes; empty where it is not known."""
    return {source: date.fromisoformat(day) for source, day in json.loads(run.billed_by).items()}


def charges(
    session: Session, month: Month, metric: str, run: int, by: Sequence[str] = STATED_BY
) -> tuple[pl.DataFrame, int]:
    """A month as known with a run.

    Args:
        by: columns of `LedgerEntry` that tell charges apart; `day` among them.

    Returns:
        these columns and `units`, and the places of `units`.
    """
    days = known_days(session, month, metric, run)
    table, places = charges_of(session, [day.id for day in days.values()])
    sums = table.group_by(by).agg(pl.col("units").sum())
    old = _old_charges(session, month, metric, run, days, by)
    most = max([places, *(-int(row[-1].as_tuple().exponent) for row in old)])
    scaled = [(*row[:-1], whole_units(row[-1], most)) for row in old]
    rest = pl.DataFrame(scaled, schema=sums.schema, orient="row")
    wider = pl.lit(10 ** (most - places), dtype=pl.Int128)
    return pl.concat([sums.with_columns(pl.col("units") * wider), rest]).sort(by), most


def _old_charges(
    session: Session, month: Month, metric: str, run: int, known: Collection[date], by: Sequence[str]
) -> list[tuple[Any, ...]]:
    """The entries of days that only the first release has divided."""
    columns = [getattr(LedgerEntry, name) for name in by]
    query = (
        select(*columns, exact_sum(LedgerEntry.amount))
        .where(LedgerEntry.month == str(month), LedgerEntry.metric == metric, LedgerEntry.run_id <= run)
        .where(LedgerEntry.day.not_in(known))
        .group_by(*columns)
    )
    return [tuple(row) for row in session.execute(query) if row[-1]]


def corrected(
    session: Session, month: Month, metric: str, run: int, accounts: Collection[str] | None
) -> bool:
    """Whether accounts (all when None) had entries after the month had been final.

    Args:
        run: the last that counts.
    """
    late = _late(session, month, metric, run)
    if late is None:
        return False
    if accounts is not None:
        late = late.where(LedgerEntry.account.in_(accounts))
    return session.scalar(late.limit(1)) is not None


def corrected_accounts(session: Session, month: Month, metric: str, run: int) -> frozenset[str]:
    """The accounts that had entries after the month had been final; the empty name stands for nobody."""
    late = _late(session, month, metric, run)
    return frozenset() if late is None else frozenset(session.scalars(late.distinct()))


def _late(session: Session, month: Month, metric: str, run: int) -> Select[str] | None:
    """The accounts of entries after the month had been final, until and with a run."""
    over = (AttributionRun.month == str(month), AttributionRun.metric == metric)
    final = select(func.min(AttributionRun.id)).where(*over, AttributionRun.final.is_(True))
    first = session.scalar(final)
    if first is None or first >= run:
        return None
    return select(LedgerEntry.account).where(
        LedgerEntry.month == str(month),
        LedgerEntry.metric == metric,
        LedgerEntry.run_id > first,
        LedgerEntry.run_id <= run,
    )


def post(
    session: Session, month: Month, metric: str, days: Mapping[date, NewDay], now: Knowledge
) -> Mapping[EntryKey, Decimal]:
    """Add the entries that bring the ledger to days that were divided; return them.

    Posts a run without entries where only jobs' parts, or what is known about the month, changed.
    """
    known = known_days(session, month, metric)
    old = posted(session, metric, list(days))
    new = {key: money for day, each in days.items() for key, money in lines(day, each.costs).items()}
    changes = {
        key: difference(new.get(key, ZERO), old.get(key, ZERO))
        for key in sorted({*old, *new})
        if new.get(key, ZERO) != old.get(key, ZERO)
    }
    other = any(
        day not in known or known[day].costs_digest != each.costs_digest for day, each in days.items()
    )
    if changes or other or _tells_more(knowledge(session, month, metric), now, month):
        before = {day: known[day].inputs for day in known}
        _insert(session, month, metric, days, changes, before, now)
    return changes


def _tells_more(before: Knowledge | None, now: Knowledge, month: Month) -> bool:
    if before is None:
        return True
    same = (before.billed_through, before.estimated, before.coverage) == (
        now.billed_through,
        now.estimated,
        now.coverage,
    )
    return not same or before.is_over(month) != now.is_over(month)


def posted(session: Session, metric: str, days: Collection[date]) -> dict[EntryKey, Decimal]:
    """What is posted of some days."""
    query = (
        select(*_KEY, exact_sum(LedgerEntry.amount))
        .where(LedgerEntry.metric == metric, LedgerEntry.day.in_(days))
        .where(LedgerEntry.month.in_({str(Month.of(day)) for day in days}))
        .group_by(*_KEY)
    )
    return {EntryKey(*row[:-1]): row[-1] for row in session.execute(query) if row[-1]}


def lines(day: date, costs: DayCosts) -> dict[EntryKey, Decimal]:
    """What the entries of a day that was divided sum to."""
    keys = ["node_group", "kind", "account", "capacity", "currency"]
    sums = costs.charges.group_by(keys).agg(pl.col("units").sum()).filter(pl.col("units") != 0)
    return {EntryKey(day, *row[:-1]): amount(row[-1], costs.places) for row in sums.iter_rows()}


def _old_coverage(session: Session, run: int) -> dict[str, Coverage]:
    rows = session.scalars(select(RunCoverage).where(RunCoverage.run_id == run))
    return {row.account: Coverage(int(row.billed), int(row.used)) for row in rows}


def _insert(
    session: Session,
    month: Month,
    metric: str,
    days: Mapping[date, NewDay],
    changes: Mapping[EntryKey, Decimal],
    before: Mapping[date, Inputs],
    now: Knowledge,
) -> None:
    run = AttributionRun(
        month=str(month),
        metric=metric,
        as_of=now.as_of,
        billed_through=now.billed_through,
        billed_by=json.dumps({source: str(day) for source, day in now.billed_by.items()}),
        estimated=now.estimated,
        final=now.is_over(month) and not now.estimated,
    )
    session.add(run)
    session.flush()
    append_days(session, run.id, metric, days)
    reasons = {day: new.inputs.reason(before.get(day)) for day, new in days.items()}
    fixed = {"run_id": run.id, "month": str(month), "metric": metric}
    job = {"user": "", "cluster": "", "dbindex": 0, "job_id": 0}
    rows = [
        fixed | job | key._asdict() | {"amount": money, "reason": reasons[key.day]}
        for key, money in changes.items()
    ]
    if rows:
        session.execute(insert(LedgerEntry), rows)
        _clear(session, run.id, changes)


def _clear(session: Session, run: int, changes: Mapping[EntryKey, Decimal]) -> None:
    """The other side: what is now divided more, or less, of the bill."""
    sums: defaultdict[tuple[date, str, str, str], list[Decimal]] = defaultdict(list)
    for key, money in changes.items():
        sums[key.day, key.node_group, key.capacity, key.currency].append(money)
    names = ("day", "node_group", "capacity", "currency")
    rows = [
        dict(zip(names, key, strict=True)) | {"run_id": run, "amount": -total(parts)}
        for key, parts in sums.items()
        if total(parts)
    ]
    if rows:
        session.execute(insert(ClearingEntry), rows)

"""The ledger: what changed is posted as new entries, sums of entries are what is known."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import cast

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from api.db.exact import exact_sum
from api.db.models import AttributionRun, LedgerEntry, RunCoverage
from hpctools.budget.attribution import Attribution, Coverage, Kind, LineKey
from hpctools.budget.money import ZERO, difference
from hpctools.budget.month import Month
from hpctools.budget.statement import Charge, Knowledge

_KEY = (
    LedgerEntry.day,
    LedgerEntry.node_group,
    LedgerEntry.kind,
    LedgerEntry.account,
    LedgerEntry.user,
    LedgerEntry.cluster,
    LedgerEntry.dbindex,
    LedgerEntry.job_id,
    LedgerEntry.currency,
)


def knowledge(session: Session, month: Month, metric: str) -> Knowledge | None:
    """What the last run knew about a month; None when there was none."""
    run = _last_run(session, month, metric)
    if run is None:
        return None
    coverages = session.scalars(select(RunCoverage).where(RunCoverage.run_id == run.id))
    return Knowledge(
        as_of=run.as_of,
        billed_through=run.billed_through,
        estimated=run.estimated,
        coverage={row.account: Coverage(int(row.billed), int(row.used)) for row in coverages},
    )


def charges(session: Session, month: Month, metric: str) -> list[Charge]:
    """The month's ledger by day, kind, account and user."""
    by = (LedgerEntry.day, LedgerEntry.kind, LedgerEntry.account, LedgerEntry.user, LedgerEntry.currency)
    query = (
        select(*by, exact_sum(LedgerEntry.amount).label("amount"))
        .where(LedgerEntry.month == str(month), LedgerEntry.metric == metric)
        .group_by(*by)
        .order_by(*by)
    )
    return [
        Charge(row.day, cast(Kind, row.kind), row.account, row.user, row.currency, row.amount)
        for row in session.execute(query)
        if row.amount
    ]


def post(
    session: Session, month: Month, metric: str, attribution: Attribution, now: Knowledge
) -> Mapping[LineKey, Decimal]:
    """Add the entries that bring the ledger to an attribution; return them, none when nothing changed.

    Posts a run without entries where only what is known about the month changed.
    """
    old = _lines(session, month, metric)
    new = {line.key: line.amount for line in attribution.lines}
    changes = {
        key: difference(new.get(key, ZERO), old.get(key, ZERO))
        for key in sorted({*old, *new})
        if new.get(key, ZERO) != old.get(key, ZERO)
    }
    if changes or _tells_more(knowledge(session, month, metric), now, month):
        _insert(session, month, metric, changes, now)
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


def _lines(session: Session, month: Month, metric: str) -> dict[LineKey, Decimal]:
    query = (
        select(*_KEY, exact_sum(LedgerEntry.amount))
        .where(LedgerEntry.month == str(month), LedgerEntry.metric == metric)
        .group_by(*_KEY)
    )
    return {LineKey(*key): amount for *key, amount in session.execute(query) if amount}


def _last_run(session: Session, month: Month, metric: str) -> AttributionRun | None:
    query = (
        select(AttributionRun)
        .where(AttributionRun.month == str(month), AttributionRun.metric == metric)
        .order_by(AttributionRun.id.desc())
        .limit(1)
    )
    return session.scalar(query)


def _insert(
    session: Session, month: Month, metric: str, changes: Mapping[LineKey, Decimal], now: Knowledge
) -> None:
    run = AttributionRun(
        month=str(month),
        metric=metric,
        as_of=now.as_of,
        billed_through=now.billed_through,
        estimated=now.estimated,
    )
    session.add(run)
    session.flush()
    for account, coverage in now.coverage.items():
        session.add(
            RunCoverage(
                run_id=run.id, account=account, billed=Decimal(coverage.billed), used=Decimal(coverage.used)
            )
        )
    rows = [
        {"run_id": run.id, "month": str(month), "metric": metric, "amount": amount} | vars(key)
        for key, amount in changes.items()
    ]
    if rows:
        session.execute(insert(LedgerEntry), rows)

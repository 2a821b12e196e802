"""What is behind a figure: the ledger's entries, and the bill's rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from sqlalchemy import Engine, Select, select

from api.db.engine import reading
from api.db.models import AttributionRun, LedgerEntry
from api.services.books import Moment, open_books
from hpctools.budget.allowance import Period
from hpctools.budget.attribution import Kind
from hpctools.budget.month import months_of
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite


@dataclass(frozen=True)
class Entry:
    """An entry of the ledger.

    Attributes:
        run, as_of: the run that posted it, and the moment (Unix seconds) that it knew.
        reason: what had changed: `first`, or of `bill`, `jobs`, `policy` and `time`; empty in the first
            release.
    """

    id: int
    run: int
    as_of: int
    reason: str
    day: date
    node_group: str
    kind: str
    account: str
    capacity: str
    currency: str
    amount: Decimal


@dataclass(frozen=True)
class EntriesWanted:
    """Which entries; an empty word means any."""

    kind: Kind | None = None
    node_group: str = ""


@dataclass(frozen=True)
class Entries:
    """Entries in the order they were posted.

    Attributes:
        through: the last run that counts, for the pages that follow.
    """

    through: int
    entries: tuple[Entry, ...]


def entries(
    engine: Engine,
    site: BudgetSite,
    account: Account,
    period: Period,
    moment: Moment = Moment(),  # noqa: B008 - frozen
    wanted: EntriesWanted = EntriesWanted(),
    *,
    limit: int = 100,
    after: int = 0,
) -> Entries:
    """What was posted for an account, and for those below it, about some days.

    Args:
        after: number of the entry that the page before ended with.

    Raises:
        UnreachableError: the database does not answer.
    """
    with reading(engine) as session:
        books = open_books(session, site.metric, period, moment)
        query = _of(site, account, period, wanted).where(LedgerEntry.run_id <= books.through)
        if moment.known_on is not None:
            query = query.where(AttributionRun.as_of <= moment.known_on)
        page = query.where(LedgerEntry.id > after).order_by(LedgerEntry.id).limit(limit)
        return Entries(books.through, tuple(Entry(*row) for row in session.execute(page)))


def _of(site: BudgetSite, account: Account, period: Period, wanted: EntriesWanted) -> Select[Any]:
    """Entries with the moments of their runs, whatever was known when."""
    names = ("day", "node_group", "kind", "account", "capacity", "currency", "amount")
    columns = [getattr(LedgerEntry, name) for name in names]
    query = (
        select(LedgerEntry.id, LedgerEntry.run_id, AttributionRun.as_of, LedgerEntry.reason, *columns)
        .join(AttributionRun, AttributionRun.id == LedgerEntry.run_id)
        .where(LedgerEntry.metric == site.metric)
        .where(LedgerEntry.month.in_([str(month) for month in months_of(period.first, period.end)]))
        .where(LedgerEntry.day >= period.first, LedgerEntry.day < period.end)
    )
    if account.name != SITE_ACCOUNT:
        query = query.where(LedgerEntry.account.in_(sorted(site.subtree(account.name))))
    if wanted.kind is not None:
        query = query.where(LedgerEntry.kind == wanted.kind)
    return query.where(LedgerEntry.node_group == wanted.node_group) if wanted.node_group else query

"""Statements out of the ledger, and what is behind them: entries and jobs."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import count
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import polars as pl
from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from api.db.day_store import job_costs_of, known_days
from api.db.engine import reading
from api.db.ledger import charges, corrected, knowledge, last_run
from api.db.models import AttributionRun, LedgerEntry
from hpctools.budget.attribution_table import amount
from hpctools.budget.charges_table import charges_for
from hpctools.budget.month import Month
from hpctools.budget.statement import Knowledge, Statement, statement
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite
from hpctools.budget.usage import NANO

_MONTHS = 36
_STATEMENTS = 20_000


def read_statement(
    engine: Engine, site: BudgetSite, account: Account, month: Month, known_on: int | None = None
) -> Statement:
    """One account's month.

    What a run has told does not change, so a statement is worked out once for each run, site and account.

    Args:
        known_on: Unix seconds; as it was known then, as it is known now when None.

    Raises:
        UnreachableError: the database does not answer.
    """
    with reading(engine) as session:
        run = last_run(session, month, site.metric, known_on)
        if run is None:
            return statement(site, account, month, (), None)
        kept = _kept_for(engine)
        key = (site.metric, str(month), run.id, run.as_of)
        whole = kept.months.get(key, lambda: _whole(session, site, month, run.id, run.as_of))

        def made() -> Statement:
            return _statement(session, site, account, month, whole, run.id)

        return kept.statements.get((*key, kept.shape(site), account), made)


@dataclass(frozen=True)
class JobCost:
    """What one job cost in a month.

    Attributes:
        node_seconds: of whole nodes, in its share of them.
        parts: by day, node group and capacity; the bill's rows of these are behind it.
    """

    cluster: str
    dbindex: int
    job_id: int
    account: str
    user: str
    currency: str
    amount: Decimal
    node_seconds: Decimal
    parts: tuple[tuple[date, str, str, Decimal], ...]


@dataclass(frozen=True)
class JobCosts:
    """A page of jobs, the dearest first.

    Attributes:
        total: how many there are.
    """

    total: int
    jobs: tuple[JobCost, ...]


def job_costs(
    engine: Engine,
    site: BudgetSite,
    account: Account,
    month: Month,
    known_on: int | None = None,
    *,
    user: str = "",
    limit: int = 100,
    offset: int = 0,
) -> JobCosts:
    """What each job of an account and of those below it cost in a month.

    Args:
        known_on: Unix seconds; as it was known then.
        user: only this one's jobs.

    Raises:
        UnreachableError: the database does not answer.
    """
    whole = account.name == SITE_ACCOUNT
    mine = pl.lit(True) if whole else pl.col("account").is_in(site.subtree(account.name))
    wanted = mine & (pl.col("user") == user) if user else mine
    with reading(engine) as session:
        run = last_run(session, month, site.metric, known_on)
        days = known_days(session, month, site.metric, run.id) if run else {}
        table, places = job_costs_of(session, [day.id for day in days.values()], wanted)
    by = ["cluster", "dbindex", "job_id", "account", "user", "currency"]
    costs = table.group_by(by).agg(pl.col("units", "used").sum())
    page = costs.sort("units", *by, descending=[True] + [False] * len(by)).slice(offset, limit)
    parts = table.join(page.select(by), on=by, how="semi").sort("day", "node_group", "capacity")
    return JobCosts(costs.height, _jobs(page, parts, places))


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
class Entries:
    """A page of entries, in the order they were posted.

    Attributes:
        total: how many there are.
    """

    total: int
    entries: tuple[Entry, ...]


def entries(
    engine: Engine, site: BudgetSite, account: Account, month: Month, limit: int = 100, offset: int = 0
) -> Entries:
    """What was posted for an account, and for those below it, about a month.

    Raises:
        UnreachableError: the database does not answer.
    """
    about = [LedgerEntry.month == str(month), LedgerEntry.metric == site.metric]
    if account.name != SITE_ACCOUNT:
        about.append(LedgerEntry.account.in_(site.subtree(account.name)))
    names = ("day", "node_group", "kind", "account", "capacity", "currency", "amount")
    columns = [getattr(LedgerEntry, name) for name in names]
    query = (
        select(LedgerEntry.id, LedgerEntry.run_id, AttributionRun.as_of, LedgerEntry.reason, *columns)
        .join(AttributionRun, AttributionRun.id == LedgerEntry.run_id)
        .where(*about)
        .order_by(LedgerEntry.id)
    )
    with reading(engine) as session:
        count = session.scalar(select(func.count()).select_from(LedgerEntry).where(*about)) or 0
        rows = session.execute(query.limit(limit).offset(offset))
        return Entries(count, tuple(Entry(*row) for row in rows))


def _jobs(page: pl.DataFrame, parts: pl.DataFrame, places: int) -> tuple[JobCost, ...]:
    behind: defaultdict[tuple[Any, ...], list[tuple[date, str, str, Decimal]]] = defaultdict(list)
    columns = ("cluster", "dbindex", "currency", "day", "node_group", "capacity", "units")
    for cluster, dbindex, currency, day, group, capacity, units in parts.select(columns).iter_rows():
        behind[cluster, dbindex, currency].append((day, group, capacity, amount(units, places)))
    return tuple(
        JobCost(
            cluster=cluster,
            dbindex=dbindex,
            job_id=job_id,
            account=account,
            user=user,
            currency=currency,
            amount=amount(units, places),
            node_seconds=Decimal(used) / NANO,
            parts=tuple(behind[cluster, dbindex, currency]),
        )
        for cluster, dbindex, job_id, account, user, currency, units, used in page.iter_rows()
    )


@dataclass(frozen=True)
class _Whole:
    """A site's month as a run told it."""

    table: pl.DataFrame
    places: int
    knowledge: Knowledge | None


def _whole(session: Session, site: BudgetSite, month: Month, run: int, as_of: int) -> _Whole:
    table, places = charges(session, month, site.metric, run)
    return _Whole(table, places, knowledge(session, month, site.metric, as_of))


def _statement(
    session: Session, site: BudgetSite, account: Account, month: Month, whole: _Whole, run: int
) -> Statement:
    mine: Sequence[str] | None = None
    if account.name != SITE_ACCOUNT:
        mine = sorted(site.subtree(account.name))
    late = corrected(session, month, site.metric, run, mine)
    of_account = charges_for(whole.table, whole.places, site, account)
    return statement(site, account, month, of_account, whole.knowledge, late)


Value = TypeVar("Value")


class _Kept(Generic[Value]):
    """Values by key, the ones used last; each is made once at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value


class _KeptOfStore:
    """What is kept of one store."""

    def __init__(self) -> None:
        self.months: _Kept[_Whole] = _Kept(_MONTHS)
        self.statements: _Kept[Statement] = _Kept(_STATEMENTS)
        self._numbers = count()
        self._shapes: dict[tuple[object, ...], int] = {}

    def shape(self, site: BudgetSite) -> int:
        """A number for a site's tree of accounts; there are as many as it has had."""
        return self._shapes.setdefault(site.shape, next(self._numbers))


_kept: WeakKeyDictionary[Engine, _KeptOfStore] = WeakKeyDictionary()
_kept_lock = Lock()


def _kept_for(engine: Engine) -> _KeptOfStore:
    with _kept_lock:
        return _kept.setdefault(engine, _KeptOfStore())

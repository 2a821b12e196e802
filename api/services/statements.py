"""Statements out of the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import polars as pl
from sqlalchemy import Engine, bindparam, select
from sqlalchemy.orm import Session

from api.db.engine import reading
from api.db.ledger import STATED_BY, corrected_accounts, knowledge
from api.db.looks import looking
from api.db.models import AttributionRun
from api.services.charged import less, month_charges
from api.services.kept import Kept, KeptByStore, Same
from api.services.store_state import money_state
from hpctools.budget.charges_table import MonthSums
from hpctools.budget.month import Month
from hpctools.budget.statement import NOTHING, Knowledge, Statement, statement
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite

_MONTHS = 36
_SITES = 8
_SHAPES = 1_000
_MOST_SECONDS = 2**62
_LAST = (
    select(AttributionRun.id, AttributionRun.as_of)
    .where(AttributionRun.month == bindparam("month"), AttributionRun.metric == bindparam("metric"))
    .where(AttributionRun.as_of <= bindparam("most"))
    .order_by(AttributionRun.id.desc())
    .limit(1)
)


def read_statement(
    engine: Engine, site: BudgetSite, account: Account, month: Month, known_on: int | None = None
) -> Statement:
    """What one account spent in a month; `read_month_statement` also tells what it may spend.

    What a run has told does not change: it is read and summed up once for all accounts, and each statement
    is told from these sums anew.

    Args:
        known_on: Unix seconds; as it was known then, as it is known now when None.

    Raises:
        UnreachableError: the database does not answer.
    """
    run = _last(engine, month, site.metric, known_on)
    if run is None:
        return statement(site, account, month, NOTHING, None)
    whole, spent = _summed(engine, site, month, run)
    return statement(
        site, account, month, spent.of(site, account), whole.knowledge, _is_late(whole, site, account)
    )


def _is_late(whole: SiteMonth, site: BudgetSite, account: Account) -> bool:
    late = whole.late if account.name == SITE_ACCOUNT else whole.late & site.subtree(account.name)
    return bool(late)


def _summed(engine: Engine, site: BudgetSite, month: Month, run: RunMark) -> tuple[SiteMonth, MonthSums]:
    def made() -> tuple[SiteMonth, MonthSums]:
        with reading(engine) as session:
            whole = site_month(engine, session, site, month, run)
        return whole, MonthSums(site, whole.table, whole.places)

    kept = _kept.of(engine)
    return kept.sums.get((site.metric, str(month), run.id, run.as_of, kept.shape(site)), made)


@dataclass(frozen=True)
class RunMark:
    """Which run told most of a month; the rest of it is only read where something must be worked out.

    Attributes:
        as_of: Unix seconds.
    """

    id: int
    as_of: int


def _last(engine: Engine, month: Month, metric: str, known_on: int | None) -> RunMark | None:
    """The run that told a month last; asked once for each state of the store, as runs are append-only."""
    if known_on is not None:
        return _asked(engine, month, metric, known_on)
    key = (str(month), metric, money_state(engine).run)
    return _kept.of(engine).lasts.get(key, lambda: _asked(engine, month, metric, _MOST_SECONDS))


def _asked(engine: Engine, month: Month, metric: str, most: int) -> RunMark | None:
    with looking(engine) as connection:
        row = connection.execute(_LAST, {"month": str(month), "metric": metric, "most": most}).one_or_none()
    return None if row is None else RunMark(*row)


@dataclass(frozen=True)
class SiteMonth:
    """A site's month as a run told it.

    Attributes:
        late: the accounts that had something changed after it had been final; the empty name is nobody's.
    """

    table: pl.DataFrame
    places: int
    knowledge: Knowledge | None
    late: frozenset[str]


def site_month(
    engine: Engine, session: Session, site: BudgetSite, month: Month, run: AttributionRun | RunMark
) -> SiteMonth:
    """A site's month as a run told it; read once."""

    def made() -> SiteMonth:
        table, places = less(month_charges(engine, session, site, str(month), run.id), STATED_BY)
        told = knowledge(session, month, site.metric, run.as_of)
        late = corrected_accounts(session, month, site.metric, run.id)
        return SiteMonth(table, places, told, late)

    return _kept.of(engine).months.get((site.metric, str(month), run.id, run.as_of), made)


def shape_of(engine: Engine, site: BudgetSite) -> int:
    """A number for a site's tree of accounts, by which what depends on it can be kept."""
    return _kept.of(engine).shape(site)


class _KeptOfStore:
    """What is kept of one store."""

    def __init__(self) -> None:
        self.months: Kept[SiteMonth] = Kept(_MONTHS)
        self.sums: Kept[tuple[SiteMonth, MonthSums]] = Kept(_MONTHS)
        self.lasts: Kept[RunMark | None] = Kept(_MONTHS)
        self._shapes: Kept[int] = Kept(_SITES)
        self._numbers = count()
        self._numbered: Kept[int] = Kept(_SHAPES)

    def shape(self, site: BudgetSite) -> int:
        """A number for a site's tree of accounts; there are as many as it has had.

        Found by the site's object: to compare all names of a large one takes longer than the rest.
        """
        return self._shapes.get(Same(site), lambda: self._number(site.shape))

    def _number(self, shape: tuple[object, ...]) -> int:
        return self._numbered.get(shape, lambda: next(self._numbers))


_kept = KeptByStore(_KeptOfStore)

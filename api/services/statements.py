"""Statements out of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import polars as pl
from sqlalchemy import Engine, bindparam, select
from sqlalchemy.orm import Session

from api.db.engine import reachable, reading
from api.db.ledger import STATED_BY, corrected, knowledge
from api.db.models import AttributionRun
from api.services.charged import less, month_charges
from api.services.kept import Kept, KeptByStore
from hpctools.budget.charges_table import SplitCharges
from hpctools.budget.month import Month
from hpctools.budget.statement import Knowledge, Statement, statement
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite

_MONTHS = 36
_STATEMENTS = 20_000
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
    """One account's month.

    What a run has told does not change, so a statement is worked out once for each run, site and account.

    Args:
        known_on: Unix seconds; as it was known then, as it is known now when None.

    Raises:
        UnreachableError: the database does not answer.
    """
    run = _last(engine, month, site.metric, known_on)
    if run is None:
        return statement(site, account, month, (), None)

    def made() -> Statement:
        with reading(engine) as session:
            whole = site_month(engine, session, site, month, run)
            return _statement(session, site, account, month, whole, run.id)

    kept = _kept.of(engine)
    key = (site.metric, str(month), run.id, run.as_of, kept.shape(site), account)
    return kept.statements.get(key, made)


@dataclass(frozen=True)
class RunMark:
    """Which run told most of a month; the rest of it is only read where something must be worked out.

    Attributes:
        as_of: Unix seconds.
    """

    id: int
    as_of: int


def _last(engine: Engine, month: Month, metric: str, known_on: int | None) -> RunMark | None:
    most = _MOST_SECONDS if known_on is None else known_on
    with reachable(), engine.connect() as connection:
        row = connection.execute(_LAST, {"month": str(month), "metric": metric, "most": most}).one_or_none()
    return None if row is None else RunMark(*row)


@dataclass(frozen=True)
class SiteMonth:
    """A site's month as a run told it.

    Attributes:
        split: the same, for statements.
        late: whether anything of it came after it had been final.
    """

    table: pl.DataFrame
    places: int
    knowledge: Knowledge | None
    split: SplitCharges
    late: bool


def site_month(
    engine: Engine, session: Session, site: BudgetSite, month: Month, run: AttributionRun | RunMark
) -> SiteMonth:
    """A site's month as a run told it; read once."""

    def made() -> SiteMonth:
        table, places = less(month_charges(engine, session, site, str(month), run.id), STATED_BY)
        told = knowledge(session, month, site.metric, run.as_of)
        late = corrected(session, month, site.metric, run.id, None)
        return SiteMonth(table, places, told, SplitCharges(table, places), late)

    return _kept.of(engine).months.get((site.metric, str(month), run.id, run.as_of), made)


def shape_of(engine: Engine, site: BudgetSite) -> int:
    """A number for a site's tree of accounts, by which what depends on it can be kept."""
    return _kept.of(engine).shape(site)


def _statement(
    session: Session, site: BudgetSite, account: Account, month: Month, whole: SiteMonth, run: int
) -> Statement:
    mine: Sequence[str] | None = None
    if account.name != SITE_ACCOUNT:
        mine = sorted(site.subtree(account.name))
    late = whole.late and corrected(session, month, site.metric, run, mine)
    return statement(site, account, month, whole.split.of(site, account), whole.knowledge, late)


class _KeptOfStore:
    """What is kept of one store."""

    def __init__(self) -> None:
        self.months: Kept[SiteMonth] = Kept(_MONTHS)
        self.statements: Kept[Statement] = Kept(_STATEMENTS)
        self._numbers = count()
        self._shapes: dict[tuple[object, ...], int] = {}

    def shape(self, site: BudgetSite) -> int:
        """A number for a site's tree of accounts; there are as many as it has had."""
        return self._shapes.setdefault(site.shape, next(self._numbers))


_kept = KeptByStore(_KeptOfStore)

"""Statements out of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import polars as pl
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from api.db.engine import reading
from api.db.ledger import charges, corrected, knowledge, last_run
from api.db.models import AttributionRun
from api.services.kept import Kept, KeptByStore
from hpctools.budget.charges_table import charges_for
from hpctools.budget.month import Month
from hpctools.budget.statement import Knowledge, Statement, statement
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite

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
        kept = _kept.of(engine)
        whole = site_month(engine, session, site, month, run)

        def made() -> Statement:
            return _statement(session, site, account, month, whole, run.id)

        key = (site.metric, str(month), run.id, run.as_of, kept.shape(site), account)
        return kept.statements.get(key, made)


@dataclass(frozen=True)
class SiteMonth:
    """A site's month as a run told it."""

    table: pl.DataFrame
    places: int
    knowledge: Knowledge | None


def site_month(
    engine: Engine, session: Session, site: BudgetSite, month: Month, run: AttributionRun
) -> SiteMonth:
    """A site's month as a run told it; read once."""

    def made() -> SiteMonth:
        table, places = charges(session, month, site.metric, run.id)
        return SiteMonth(table, places, knowledge(session, month, site.metric, run.as_of))

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
    late = corrected(session, month, site.metric, run, mine)
    of_account = charges_for(whole.table, whole.places, site, account)
    return statement(site, account, month, of_account, whole.knowledge, late)


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

"""What reconciles a month of this site: its sources, by the settings and the site file as they are then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date

from sqlalchemy import Engine

from api.db.engine import reading, writing
from api.db.own_nodes_store import history, is_new, note, note_again
from api.services import audit
from api.services.reconcile import Outcome, Sacct, reconcile
from api.services.site_file import SiteFile
from api.services.sources import RateCards, of_site
from api.services.tokens import operator
from api.settings import Settings
from hpctools.budget.month import Month, day_of
from hpctools.budget.own_nodes import OwnHistory, otherwise
from hpctools.budget.tree import BudgetSite


@dataclass(frozen=True)
class SiteWork:
    """Reconciles months of one site.

    Attributes:
        own_nodes_from: a day of the month from which its own nodes are billed anew, as the site file has them
            now; None where days that are over stay as they were billed.
    """

    settings: Settings
    site_file: SiteFile
    engine: Engine
    own_nodes_from: date | None = None

    def __call__(self, month: Month, now: int) -> Outcome:
        """Bring a month's ledger to what the bill and slurmdbd say now.

        Raises:
            UnreachableError: AWS, slurmdbd or the database does not answer.
            BudgetError: the bill or the jobs cannot be read.
            SiteError: the site file cannot be read.
        """
        site = self.site_file.current()
        known = self._noted(site, month, now)
        own = RateCards(known.prices(), site.metric, lambda: now, noted=bool(known.notes))
        bills = of_site(self.site_file.declared(), site.metric, self.settings.bill_scope, own)
        jobs = Sacct(self.settings.sacct, self.settings.sacct_timeout)
        done = reconcile(self.engine, site, month, bills, jobs, now, jobs)
        return replace(done, kept_days=len(otherwise(known, site, month, now)))

    def _noted(self, site: BudgetSite, month: Month, now: int) -> OwnHistory:
        """What is known of own nodes, with what the site file says now."""
        today, again = day_of(now), self.own_nodes_from
        with reading(self.engine) as session:
            known = history(session)
        if again is None and not is_new(known, site, today):
            return known
        with writing(self.engine) as session:
            note(session, site, today, now)
            if again is not None:
                note_again(session, site, again, month.end, now)
                days = {"first": str(again), "end": str(month.end)}
                audit.record(session, operator(), "own-nodes.bill-anew", str(month), None, days, at=now)
            return history(session)

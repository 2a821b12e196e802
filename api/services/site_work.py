"""What reconciles a month of this site: its sources, by the settings and the site file as they are then."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine

from api.services.reconcile import Outcome, Sacct, reconcile
from api.services.site_file import SiteFile
from api.services.sources import of_site
from api.settings import Settings
from hpctools.budget.month import Month


@dataclass(frozen=True)
class SiteWork:
    """Reconciles months of one site."""

    settings: Settings
    site_file: SiteFile
    engine: Engine

    def __call__(self, month: Month, now: int) -> Outcome:
        """Bring a month's ledger to what the bill and slurmdbd say now.

        Raises:
            UnreachableError: AWS, slurmdbd or the database does not answer.
            BudgetError: the bill or the jobs cannot be read.
            SiteError: the site file cannot be read.
        """
        site = self.site_file.current()
        bills = of_site(self.site_file.declared(), site.metric, self.settings.bill_scope)
        jobs = Sacct(self.settings.sacct, self.settings.sacct_timeout)
        return reconcile(self.engine, site, month, bills, jobs, now, jobs)

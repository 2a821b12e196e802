"""Reads what pages and statements need before anybody asks, inside the service.

What a run has told is worked out once, and that takes a second for a month of a large site: whoever looks
first after a reconciliation would wait for it, and everybody else behind them.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Engine, func, select

from api.db.engine import reading
from api.db.models import AttributionRun
from api.services.books import month_period
from api.services.budgets import with_budgets
from api.services.month_statements import read_month_statement
from api.services.overview import read_overview
from api.services.site_file import SiteFile
from api.services.worker import Worker
from hpctools.budget.month import Month, day_of
from hpctools.budget.tree import SITE_ACCOUNT


class Warming:
    """Looks whether there is a new run, whoever made it, and reads the present month and the one before.

    Args:
        clock: Unix seconds now.
    """

    def __init__(self, engine: Engine, site_file: SiteFile, clock: Callable[[], int]) -> None:
        self._engine = engine
        self._site_file = site_file
        self._clock = clock
        self._seen: int | None = None
        self._worker = Worker("warm", self.tick)

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._worker.start()

    def stop(self, timeout: float) -> None:
        """Read nothing more."""
        self._worker.stop(timeout)

    def tick(self) -> bool:
        """Read the two months if there is a run that they were not read after; tells whether they were.

        Raises:
            HpctoolsError: the database or the site file cannot be read; the next tick tries again.
        """
        with reading(self._engine) as session:
            newest = session.scalar(select(func.max(AttributionRun.id)))
        if newest is None or newest == self._seen:
            return False
        site, now = self._site_file.current(), self._clock()
        present = Month.of(day_of(now))
        asked = with_budgets(self._engine, site, day_of(now))  # as those who ask have it
        for month in (present, present.previous):
            if not self._worker.stops:
                read_overview(self._engine, site, site.by_name[SITE_ACCOUNT], month_period(month), now)
                read_month_statement(self._engine, asked, asked.by_name[SITE_ACCOUNT], month, now)
        self._seen = newest
        return True

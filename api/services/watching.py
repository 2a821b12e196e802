"""Watches budgets by the clock, inside the service; of several replicas one does it at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Engine, func, select

from api.db.alone import alone
from api.db.budget_models import BurnReading
from api.db.engine import reading
from api.services.burning import SacctJobs
from api.services.scheduler import is_due
from api.services.site_file import SiteFile
from api.services.slurm_limits import SlurmLimits
from api.services.watch import Watched, Watcher, channels
from api.services.worker import Worker
from api.settings import Settings

_log = logging.getLogger("hpctools.watching")


@dataclass(frozen=True)
class SiteWatch:
    """One round for a site, by the settings and the site file as they are then."""

    settings: Settings
    site_file: SiteFile
    engine: Engine

    def __call__(self, now: int) -> Watched:
        """Measure, tell, and enforce where the settings say so. Raises as `Watcher.look` does."""
        site = self.site_file.current()
        jobs = SacctJobs(self.settings.sacct, self.settings.sacct_timeout)
        slurm = SlurmLimits(site.cluster) if self.settings.enforce else None
        return Watcher(self.engine, jobs, channels(self.settings), slurm).look(site, now)


class Watching:
    """Makes a round when it is time for one.

    Args:
        look: makes a round as of a moment.
        every: seconds between two rounds of all replicas together; 0 for none.
        clock: Unix seconds now.
    """

    def __init__(
        self, engine: Engine, look: Callable[[int], Watched], every: int, clock: Callable[[], int]
    ) -> None:
        self._engine = engine
        self._look = look
        self._every = every
        self._clock = clock
        self._tried: int | None = None
        self._worker = Worker("watch", self.tick)

    def start(self) -> None:
        """Begin, in a thread of its own."""
        if self._every:
            self._worker.start()

    def stop(self, timeout: float) -> None:
        """Begin no more rounds; a message that is cut off is tried again, with the same key."""
        self._worker.stop(timeout)

    def tick(self) -> bool:
        """Make a round if it is time and no other replica makes one; tells whether it was made.

        Raises:
            HpctoolsError: it failed; the next try is a round's time later.
        """
        if not self._every or not self._due():
            return False
        with alone(self._engine, "watch") as mine:
            # Another replica may have made it since we looked.
            if not mine or not self._due():
                return False
            self._tried = self._clock()
            watched = self._look(self._tried)
        _tell(watched)
        return True

    def _due(self) -> bool:
        """Every round begins with a measurement: the last one in the database tells when that was."""
        now = self._clock()
        with reading(self._engine) as session:
            measured = session.scalar(select(func.max(BurnReading.at)))
        return all(last is None or is_due(last, self._every, now) for last in (measured, self._tried))


def _tell(watched: Watched) -> None:
    steps = len(watched.enforced.steps) if watched.enforced else 0
    if watched.alerts or watched.delivered.sent or watched.delivered.failed or steps:
        _log.info(
            "budgets: %d new alerts, %d messages sent, %d failed, %d changes of limits",
            watched.alerts,
            watched.delivered.sent,
            watched.delivered.failed,
            steps,
        )
    if watched.enforced and watched.enforced.frozen:
        _log.warning("budgets are not enforced: %s", watched.enforced.frozen)

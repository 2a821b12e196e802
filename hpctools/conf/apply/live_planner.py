"""Planner by the real thing: reads what there is, compares, and boots the new files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpctools.conf.apply import fileset
from hpctools.conf.apply.cluster import Boot
from hpctools.conf.bundle import Bundle
from hpctools.conf.plan.live import Live
from hpctools.conf.plan.model import Plan
from hpctools.conf.plan.read import read_for
from hpctools.conf.plan.settle import settled_plan
from hpctools.errors import UnreachableError
from hpctools.slurm import munge
from hpctools.slurm.ahead import ask_ahead
from hpctools.slurm.ask import Ask
from hpctools.slurm.versions import Release

if TYPE_CHECKING:
    from hpctools.conf.preflight.model import Problem


class LivePlanner:
    """See the Protocol `Planner`.

    Args:
        folder: the configuration folder.
        release: the Slurm release, when slurmctld does not tell it.
        ask: runs Slurm's commands; those of this host when None.
    """

    def __init__(self, folder: Path, release: Release | None, ask: Ask | None = None) -> None:
        self._ask = ask
        self._folder = folder
        self._release = release
        self._live: Live | None = None

    def ready(self) -> None:
        """See Planner."""
        text = fileset.read(self._folder, ["slurm.conf"])
        why = munge.trouble(text["slurm.conf"].content.decode(errors="replace") if text else "")
        if why:
            raise UnreachableError(why, munge.REMEDY)

    def plan(self, wanted: Bundle, *, prune: bool) -> Plan:
        """See Planner."""
        # Asked now and not sooner: under the lock nobody else changes what there is.
        ask = self._ask or ask_ahead(self._folder)
        self._live = read_for(wanted, self._folder, ask, wait=False)
        return settled_plan(
            wanted,
            self._live,
            folder=self._folder,
            release=self._release,
            prune=prune,
            ask=self._ask,
        )

    def preflight(self, wanted: Bundle) -> Boot:
        """See Planner."""
        from hpctools.conf.preflight import bundle_files, preflight

        verdict = preflight(
            bundle_files(wanted, self._folder),
            folder=self._folder,
            state=self._state(),
            coming=_names(wanted),
        )
        lost = self._unfinished(verdict.lost_jobs)
        return Boot(tuple(_told(problem) for problem in verdict.problems), lost)

    def _unfinished(self, jobs: tuple[int, ...]) -> tuple[int, ...]:
        """Those that can be lost: slurmctld remembers jobs for minutes after their end, and ends them again.

        All of them where the queue could not be read: rather named than missed.
        """
        if self._live is None or not self._live.queue_read:
            return jobs
        unfinished = {job.id for job in self._live.jobs}
        return tuple(job for job in jobs if job in unfinished)

    def _state(self) -> Path | None:
        """slurmctld's state folder, as it says itself; of one that is down, as its files say."""
        from hpctools.conf.preflight import live_state, read_folder

        running = self._live.running if self._live else None
        place = running.settings.get("statesavelocation") if running else None
        if place is not None:
            return Path(place.value)
        return live_state(read_folder(self._folder), self._folder) if self._folder.is_dir() else None


def _told(problem: Problem) -> str:
    said = f" ({problem.said})" if problem.said else ""
    return f"{problem.meaning}{said}" + (f": {problem.remedy}" if problem.remedy else "")


def _names(wanted: Bundle) -> frozenset[str]:
    tree = wanted.accounts
    return frozenset({*(qos.name for qos in tree.qos), *(account.name for account in tree.accounts)})

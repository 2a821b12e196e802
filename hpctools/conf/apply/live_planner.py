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
        # slurmctld remembers jobs for minutes after their end, and from 24.11 on ends them once more.
        unfinished = {job.id for job in self._live.jobs} if self._live else set()
        lost = tuple(job for job in verdict.lost_jobs if job in unfinished)
        return Boot(tuple(_told(problem) for problem in verdict.problems), lost)

    def _state(self) -> Path | None:
        """slurmctld's state folder, as it says itself."""
        running = self._live.running if self._live else None
        place = running.settings.get("statesavelocation") if running else None
        return Path(place.value) if place else None


def _told(problem: Problem) -> str:
    said = f" ({problem.said})" if problem.said else ""
    return f"{problem.meaning}{said}" + (f": {problem.remedy}" if problem.remedy else "")


def _names(wanted: Bundle) -> frozenset[str]:
    tree = wanted.accounts
    return frozenset({*(qos.name for qos in tree.qos), *(account.name for account in tree.accounts)})

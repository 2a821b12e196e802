"""What became of a run's baseline job, by what Slurm says of it: pure.

A job that is cancelled, or that runs out of time, ends the run with it: somebody wanted so. One that Slurm
lost is replaced. While its processes are being ended squeue says `COMPLETING` of either; then its reason
tells (`job_reason_string` in Slurm's src/common/slurm_protocol_defs.c).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING")
_BY_STATE = {
    "CANCELLED": "was cancelled (scancel)",
    "TIMEOUT": "ran out of time (--time)",
    "DEADLINE": "came to its deadline (--deadline)",
}
_BY_REASON = {"TimeLimit": _BY_STATE["TIMEOUT"], "DeadLine": _BY_STATE["DEADLINE"]}
_LOST_BY_REASON = ("NodeDown", "SystemFailure", "BootFailure", "JobLaunchFailure", "LaunchFailedRequeuedHeld")


class Told(Protocol):
    """What Slurm tells of a job."""

    @property
    def id(self) -> int: ...  # noqa: D102
    @property
    def state(self) -> str: ...  # noqa: D102
    @property
    def reason(self) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class Fate:
    """How a job stands, or ended.

    Attributes:
        alive: it waits or runs.
        ending: its processes are being ended; whether it is lost may not be known yet.
        lost: it has ended, or ends, and nobody wanted so.
        words: how it ended, for a person, after "baseline job 12".
    """

    words: str
    alive: bool = False
    ending: bool = False
    lost: bool = False

    @property
    def wanted(self) -> bool:
        """Whether somebody wanted it to end."""
        return not (self.alive or self.lost)


def fate_of(job_id: int, jobs: Iterable[Told]) -> Fate:
    """The fate of a job among those that Slurm knows; one that it has forgotten is lost."""
    job = next((each for each in jobs if each.id == job_id), None)
    if job is None:
        return Fate("is lost (unknown to Slurm)", lost=True)
    state, reason = job.state.split()[0], job.reason
    if state in ALIVE:
        return Fate(f"is {state.lower()}", alive=True)
    if state in _BY_STATE:
        return Fate(_BY_STATE[state])
    if state != "COMPLETING":
        return Fate(f"is lost ({state})", lost=True)
    if reason in _LOST_BY_REASON:
        return Fate(f"is lost ({reason})", ending=True, lost=True)
    return Fate(_BY_REASON.get(reason, _BY_STATE["CANCELLED"]), ending=True)

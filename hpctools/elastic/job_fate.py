"""What became of a run's baseline job, by what Slurm says of it.

A job that is cancelled, or that runs out of time, ends the run with it: somebody wanted so. One that Slurm
lost is replaced. While the processes of a job are being ended slurmctld says `COMPLETING` of either, without
a reason (22.05.8, measured); slurmdbd knows at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from hpctools.errors import HpctoolsError

ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING")
ATTEMPTS, PAUSE_SECONDS = 6, 0.5
_WANTED = {
    "CANCELLED": "was cancelled (scancel)",
    "TIMEOUT": "ran out of time (--time)",
    "DEADLINE": "came to its deadline (--deadline)",
    "COMPLETING": "was ended (cancelled, or out of time)",
}


class Told(Protocol):
    """What Slurm tells of a job."""

    @property
    def id(self) -> int: ...  # noqa: D102
    @property
    def state(self) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class Fate:
    """How a job stands, or ended.

    Attributes:
        words: how it ended, for a person, after "baseline job 12".
        alive: it waits or runs.
        ending: its processes are being ended.
        lost: it has ended, or ends, and nobody wanted so.
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
    """The fate of a job among those that Slurm knows; one that it has forgotten is lost.

    One that is being ended is taken for one that somebody ended; `known_better` asks slurmdbd.
    """
    state = next((each.state.split()[0] for each in jobs if each.id == job_id), "unknown to Slurm")
    if state in ALIVE:
        return Fate(f"is {state.lower()}", alive=True)
    if state in _WANTED:
        return Fate(_WANTED[state], ending=state == "COMPLETING")
    return Fate(f"is lost ({state})", lost=True)


def known_better(
    job_id: int, fate: Fate, ended_as: Callable[[int], str], sleep: Callable[[float], None] = time.sleep
) -> Fate:
    """The same fate, or of a job that is being ended what slurmdbd says within three seconds.

    Args:
        ended_as: asks for a job's state there; "" or one of a living job: not known yet.
        sleep: waits that many seconds.
    """
    for attempt in range(ATTEMPTS if fate.ending else 0):
        sleep(PAUSE_SECONDS if attempt else 0)
        with suppress(HpctoolsError):
            state = ended_as(job_id)
            if state in _WANTED:
                return replace(fate, words=_WANTED[state])
            if state and state not in ALIVE:
                return replace(fate, words=f"is lost ({state})", lost=True)
    return fate

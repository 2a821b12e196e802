"""What became of a run's baseline job, by what Slurm says of it.

A job that is cancelled, or that runs out of time, ends the run with it: somebody wanted so. One that Slurm
lost is replaced. While the processes of a job are being ended slurmctld says `COMPLETING` of either, without
a reason (22.05.8, measured); slurmdbd knows at once, when it can be reached. When neither says why, nothing
is decided: both are asked again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from hpctools.errors import HpctoolsError
from hpctools.slurm.states import AT_WORK, WAITING

ALIVE = WAITING | AT_WORK
ATTEMPTS, PAUSE_SECONDS = 6, 0.5
_WANTED = {
    "CANCELLED": "was cancelled (scancel)",
    "TIMEOUT": "ran out of time (--time)",
    "DEADLINE": "came to its deadline (--deadline)",
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
        lost: it has ended, or ends, and nobody wanted so.
        open: it has ended, or ends, and why is not known yet.
    """

    words: str
    alive: bool = False
    lost: bool = False
    open: bool = False

    @property
    def wanted(self) -> bool:
        """Whether somebody wanted it to end."""
        return not (self.alive or self.lost or self.open)


UNSAID = Fate("was ended, and Slurm does not say why", open=True)
FORGOTTEN = Fate("is lost (unknown to Slurm)", lost=True)


def fate_of(job_id: int, jobs: Iterable[Told]) -> Fate:
    """The fate of a job among those that slurmctld knows; one that it has forgotten is lost.

    Of one that is being ended it is open; `known_better` asks slurmdbd.
    """
    state = next((each.state.split()[0] for each in jobs if each.id == job_id), None)
    if state is None:
        return FORGOTTEN
    if state in ALIVE:
        return Fate(f"is {state.lower()}", alive=True)
    return UNSAID if state == "COMPLETING" else _ended(state)


def known_better(
    job_id: int,
    fate: Fate,
    ended_as: Callable[[int], str],
    sleep: Callable[[float], None] = time.sleep,
    attempts: int = ATTEMPTS,
) -> Fate:
    """The same fate, or where it is open what slurmdbd says within three seconds.

    Of a job that slurmctld has forgotten, because it was away for long, slurmdbd is asked once.

    Args:
        ended_as: asks for a job's state there; "" or one of a living job: not known yet.
        sleep: waits that many seconds.
        attempts: how often it is asked; whoever looks again in any case asks once.
    """
    for attempt in range(attempts if fate.open else int(fate is FORGOTTEN)):
        sleep(PAUSE_SECONDS if attempt else 0)
        with suppress(HpctoolsError):
            state = ended_as(job_id)
            if state and state not in (*ALIVE, "COMPLETING"):
                return _ended(state)
    return fate


def _ended(state: str) -> Fate:
    """Of a job that has ended so."""
    if state in _WANTED:
        return Fate(_WANTED[state])
    return Fate(f"is lost ({state})", lost=True)

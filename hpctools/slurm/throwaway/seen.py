"""What was seen of a throwaway slurmctld: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpctools.slurm import states

OVER = states.OVER | {"COMPLETING"}
"""States of jobs that cannot be lost any more; the others are more, and become more with new releases."""


@dataclass(frozen=True)
class SeenNode:
    """A node as slurmctld shows it: its state's words joined by `+`, and its generic resources."""

    state: str
    gres: str


@dataclass(frozen=True)
class Booted:
    """What was seen of one throwaway slurmctld.

    Attributes:
        release: what `slurmctld -V` said.
        lines: all that it wrote, without its own name in front.
        up: whether it answered.
        code: its exit status when it ended by itself; negative for a signal; None when it did not.
        nodes: by name.
        partitions: each one's folded host list, by name.
        ended_jobs: jobs that were unfinished in its state and are ended now.
        past_jobs: jobs that were over before; slurmctld remembers them for `MinJobAge`.
        seconds: how long each phase took.
        slurmds: what slurmds wrote that ended over their generic resources, by the nodes' folded names.
    """

    release: str
    lines: tuple[str, ...]
    up: bool
    code: int | None
    nodes: Mapping[str, SeenNode] = field(default_factory=dict)
    partitions: Mapping[str, str] = field(default_factory=dict)
    ended_jobs: tuple[int, ...] = ()
    past_jobs: tuple[int, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    slurmds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def over_since(state: str, end: str) -> str:
    """When a job ended; "" while it has not.

    One that slurmctld ends now stays COMPLETING, since no slurmd answers; one that was so before was over.

    Args:
        state, end: as `scontrol show job` has them; of one that waits the end is `Unknown`, and of one that
            runs its time limit.
    """
    return end if state in OVER and end != "Unknown" else ""

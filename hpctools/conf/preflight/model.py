"""What a preflight finds: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Problem:
    """One thing that keeps a configuration from a live cluster.

    Attributes:
        said: the daemon's own line, paths as in the configuration folder; "" when it said nothing.
        meaning: what it means, one sentence.
        remedy: what to do next, one sentence; may be empty.
    """

    said: str
    meaning: str
    remedy: str = ""


@dataclass(frozen=True)
class Verdict:
    """What came of booting a configuration.

    Attributes:
        release: the Slurm release that booted it, as it calls itself; "" when it did not come that far.
        problems: what is wrong, in the order in which it was found.
        not_checked: what this preflight cannot tell, a sentence each.
        nodes: nodes that the throwaway slurmctld had.
        partitions: partitions that it had.
        lost_jobs: ids of live jobs that it ended or could not keep; only when it was given a state.
        seconds: how long each phase took.
    """

    release: str
    problems: tuple[Problem, ...]
    not_checked: tuple[str, ...] = ()
    nodes: int = 0
    partitions: int = 0
    lost_jobs: tuple[int, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

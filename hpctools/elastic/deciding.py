"""Whether the run should grow: what is known when that is asked, and the answer of somebody patient.

`Membership` asks whenever more workers could train than do; the coordinator writes each changed answer into
the journal as event `decision`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

SETTLE_SECONDS = 0.5
PATIENCE_SECONDS = 3.0
NOBODY = "nobody to grow with"


@dataclass(frozen=True)
class GrowthFacts:
    """What is known when somebody asks whether to grow. All times are on the coordinator's clock, in seconds.

    Attributes:
        waiting_since: when there were first more workers than train; they have not been used since.
        last_ready: when a worker last became ready.
        starting: workers that have been started and are not ready yet.
        rates: optimizer steps a second, by number of workers, as last measured with that many, on the whole.
        pace: of the last seconds at the present number; 0: not known.
        largest: workers that the run may have at most; None: unknown.
        now_step, total_steps: completed and planned steps; total is None when unknown.
    """

    waiting_since: float
    last_ready: float
    starting: int = 0
    largest: int | None = None
    rates: Mapping[int, float] = field(default_factory=dict)
    pace: float = 0.0
    now_step: int = 0
    total_steps: int | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether to grow.

    Attributes:
        to: workers that should train; what trains now when `grow` is False.
        not_before: when to ask again though nothing happened; None: only when something did.
        numbers: what the verdict rests on, for the journal.
        why: in a few words, for a person.
    """

    grow: bool
    to: int
    not_before: float | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    why: str = ""


class Growth(Protocol):
    """Who decides whether to grow; a pure function of what it is told."""

    def judge(self, now: float, world: int, possible: int, facts: GrowthFacts) -> Verdict:
        """Whether a run of `world` workers should become one of up to `possible`.

        Args:
            possible: the largest allowed number of workers that are there.
        """
        ...


@dataclass(frozen=True)
class Settle:
    """Grows soon: waits a moment for more workers, since one resize is better than two.

    Args:
        settle: seconds after the last worker became ready.
        patience: seconds after the first did, while others are known to be starting: processes that start
            take their node's neighbours time, too.
    """

    settle: float = SETTLE_SECONDS
    patience: float = PATIENCE_SECONDS

    def judge(self, now: float, world: int, possible: int, facts: GrowthFacts) -> Verdict:
        """As `Growth.judge`."""
        if possible == facts.largest:
            return Verdict(True, possible, why="all that the run may have are there")
        when = facts.last_ready + self.settle
        if facts.starting:
            when = max(when, facts.waiting_since + max(self.settle, self.patience))
        if now >= when:
            return Verdict(True, possible, why="the workers that became ready have settled")
        why = "workers are starting" if facts.starting else "a worker became ready just now"
        return Verdict(False, world, when, why=why)

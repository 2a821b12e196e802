"""How patient restart mode is: what the run's policy says, and what holds where it says nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hpctools.elastic.growth import Patience
from hpctools.elastic.recovery.settings import FULL_IN_RESTART_MODE, Recovery
from hpctools.elastic.spec import RunSpec

GRACEFUL_SECONDS = 60.0
TERM_SECONDS = 3.0
FIRST_SECONDS = 2.0
BLIND_SNOOZE_SECONDS = 60.0
PAUSE_SECONDS = 5.0
RESTARTS = FULL_IN_RESTART_MODE
PERIOD_SECONDS = 3600.0


@dataclass(frozen=True)
class Limits:
    """All times in seconds.

    Attributes:
        sizes: allowed totals of nodes, ascending.
        per_node: workers on each node.
        graceful: for a script that was told of an event to save and end, before SIGTERM.
        term: between SIGTERM and SIGKILL; a script without a handler is not given it.
        first: to wait for more nodes before the first generation: replica jobs start a moment later than the
            baseline, and beginning with them is cheaper than beginning anew.
        faulty: to wait for a node to come back before going on without it.
        restarts: after crashes, within `period`; one more fails the run (maxFullJobRestarts).
        retries: after crashes in the whole run, where it `has_policy` (jobMaxRetryCount).
        has_policy: whether the policy has a `runPolicy`; a run that it fails has exit codes of its own.
        patience: how careful growing is.
        blind_snooze: no growth for so long after a start of a script that never asks for events: what it has
            not saved it would lose.
    """

    sizes: tuple[int, ...]
    per_node: int = 1
    graceful: float = GRACEFUL_SECONDS
    term: float = TERM_SECONDS
    first: float = FIRST_SECONDS
    faulty: float = 0.0
    restarts: int = RESTARTS
    retries: int = Recovery.retries
    has_policy: bool = False
    period: float = PERIOD_SECONDS
    patience: Patience = field(default_factory=Patience)
    blind_snooze: float = BLIND_SNOOZE_SECONDS

    def largest_within(self, nodes: int) -> int:
        """The largest allowed size that so many nodes make; 0: they are too few."""
        return max((size for size in self.sizes if size <= nodes), default=0)

    @classmethod
    def of(cls, spec: RunSpec) -> Limits:
        """As the run's policy and recovery sections say, with HyperPod's names."""
        policy = spec.elastic_policy
        stated: dict[str, Any] = spec.recovery.get("runPolicy") or {}
        restart: dict[str, Any] = stated.get("restartPolicy") or {}
        patience, snooze = Patience.of(policy), policy.scale_up_snooze_s
        return cls(
            sizes=spec.allowed_sizes,
            per_node=spec.workers_per_node,
            graceful=GRACEFUL_SECONDS if policy.graceful_shutdown_s is None else policy.graceful_shutdown_s,
            faulty=policy.faulty_scale_down_s,
            restarts=int(_given(restart, "maxFullJobRestarts", RESTARTS)),
            retries=int(_given(stated, "jobMaxRetryCount", Recovery.retries)),
            has_policy=bool(stated),
            period=float(_given(restart, "evalPeriodSeconds", PERIOD_SECONDS)),
            patience=replace(patience, pause=PAUSE_SECONDS),
            blind_snooze=BLIND_SNOOZE_SECONDS if snooze is None else snooze,
        )


def _given(values: dict[str, Any], key: str, default: float) -> float:
    """A key without a value says as little as none."""
    value = values.get(key)
    return default if value is None else value


def term_within(seconds: float) -> float:
    """How much of the time that a departure has is between SIGTERM and SIGKILL."""
    return min(TERM_SECONDS, max(0.0, seconds) / 4)

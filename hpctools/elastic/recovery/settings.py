"""What a run is watched for and what is done about it, as a policy file says it; all of it frozen.

The names of `runPolicy` and of log rules are those of HyperPod's training operator (SageMaker documentation,
"Using the training operator to run jobs"); `metrics` is ours: numbers from the loop, not from its log.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

CAUSES = ("crash", "stalledStep", "hang", "nonFinite", "lossSpike", "slowRank", "metric", "log")
"""What can be found, in the order of `EXIT_CODES`."""

RUNGS = ("restartProcess", "replaceNode", "excludeNode", "rollBack", "restartAll", "fail")
"""What can be done, as a policy's `do` names it."""

OF_A_NODE = ("replaceNode", "excludeNode")
OF_A_CULPRIT = ("restartProcess", *OF_A_NODE)
"""Rungs that are passed over when nobody is to blame, those of a node when no node is."""

EXIT_CODES = {cause: 40 + place for place, cause in enumerate(CAUSES)}
"""With which exit code the baseline job ends when a cause led to `fail`."""

EXIT_RETRIES = 48
"""... when `jobMaxRetryCount` was used up."""
EXIT_FULL_RESTARTS = 49
"""... when `maxFullJobRestarts` was used up."""

EXIT_GOES_ON = 50
"""With which a baseline job ends whose run goes on in another one: no end of the run, and not a good one."""

OWN_TIME = "shard_seconds"
OWN_TIMES = (OWN_TIME, "sample_seconds")
"""A worker's own mean time for a shard, and for a sample of it."""

OPERATORS = ("gt", "lt", "eq", "gteq", "lteq")
MODES = ("log", "enforce")


def holds(value: float, operator: str, threshold: float) -> bool:
    """Whether `value operator threshold` is true, with HyperPod's names of the operators."""
    return {
        "gt": value > threshold,
        "lt": value < threshold,
        "eq": value == threshold,
        "gteq": value >= threshold,
        "lteq": value <= threshold,
    }[operator]


@dataclass(frozen=True)
class Threshold:
    """When a number is bad: HyperPod's metricThreshold, operator and metricEvaluationDataPoints.

    Attributes:
        points: how many bad values in a row make a finding.
    """

    value: float
    operator: str
    points: int = 1

    def is_bad(self, value: float) -> bool:
        """A value that is no finite number is bad, whatever the operator (HyperPod calls `nan` healthy)."""
        return not math.isfinite(value) or holds(value, self.operator, self.value)


@dataclass(frozen=True)
class LogRule:
    """One rule of logMonitoringConfiguration.

    Attributes:
        pattern: regular expression, matched from the beginning of a line as HyperPod does; at most one group.
        start_s: seconds from the training's (re)start to the first match; None: for ever.
        every_s: seconds between two matches; None: for ever.
        threshold: when the captured number is bad; None: when it is not finite.
        stop_pattern: a line that ends the rule's activity; None: never.
        fault: every match is a finding.
        do: rungs of the ladder for its findings.
    """

    name: str
    pattern: str
    start_s: float | None = None
    every_s: float | None = None
    threshold: Threshold | None = None
    stop_pattern: str | None = None
    fault: bool = False
    do: tuple[str, ...] = ("restartProcess", "restartAll", "fail")


@dataclass(frozen=True)
class MetricRule:
    """A threshold on a number that the loop reports with `loader.report(name=...)`."""

    name: str
    metric: str
    threshold: Threshold
    do: tuple[str, ...] = ("rollBack", "restartAll", "fail")


@dataclass(frozen=True)
class Crash:
    """A worker's process ended by itself and not well."""

    do: tuple[str, ...] = ("restartProcess", "replaceNode", "restartAll", "fail")


@dataclass(frozen=True)
class Stall:
    """A step takes `ratio` times the median of the last ones with as many workers, and at least `seconds`."""

    ratio: float = 10.0
    seconds: float = 30.0
    do: tuple[str, ...] = ("restartProcess", "replaceNode", "restartAll", "fail")


@dataclass(frozen=True)
class Hang:
    """No step was completed for `seconds`, the first one included, and what stands between passes."""

    seconds: float = 600.0
    do: tuple[str, ...] = ("restartProcess", "restartAll", "fail")


@dataclass(frozen=True)
class NonFinite:
    """One of the reported numbers is nan or infinite.

    Attributes:
        metrics: their names; `loss` is always reported.
    """

    metrics: tuple[str, ...] = ("loss",)
    do: tuple[str, ...] = ("rollBack", "restartAll", "fail")


@dataclass(frozen=True)
class Spike:
    """The loss is far above its recent course.

    Attributes:
        window: how many steps the recent course is; so many spikes in a row (or `points`, if that is more)
            are the course themselves.
        ratio: above so many times their median; None: not looked at. While the median is not above 0 it is
            passed over, and the deviations (the default's, where none are given) decide.
        deviations: above their median by so many standard deviations, estimated from the median absolute
            deviation of at least 20 steps (of `window`, where that is less); None: not looked at. With both,
            both have to hold.
        points: how many such steps in a row.
    """

    window: int = 50
    ratio: float | None = None
    deviations: float | None = 10.0
    points: int = 1
    metric: str = "loss"
    do: tuple[str, ...] = ("rollBack", "fail")


@dataclass(frozen=True)
class SlowRank:
    """A worker's own time is `ratio` times the median of the others', `points` times in a row.

    Attributes:
        metric: the number that is compared; OWN_TIME stands for both of `OWN_TIMES`.
    """

    ratio: float = 1.5
    points: int = 20
    metric: str = OWN_TIME
    do: tuple[str, ...] = ("replaceNode", "excludeNode")


FULL_IN_RESTART_MODE = 3
"""`RestartPolicy.full` where a policy says nothing of it and every recovery restarts all of the run."""


@dataclass(frozen=True)
class RestartPolicy:
    """HyperPod's restartPolicy.

    Attributes:
        period_s: for how long a recovery is held against the next one (evalPeriodSeconds).
        partial: recoveries of a part of the run in that period before all of it is restarted
            (numRestartBeforeFullJobRestart).
        full: restarts of all of it before the run fails (maxFullJobRestarts).
        full_in_period: whether only those in that period count; else all of the run do.
        offenders: most nodes that are excluded because they were to blame twice in that period
            (maxNumRepeatOffendersToAvoid).
    """

    period_s: float = 3600.0
    partial: int = 3
    full: int = 1
    offenders: int = 1
    full_in_period: bool = False


@dataclass(frozen=True)
class Recovery:
    """A run's recovery policy; see `hpctools.elastic.recovery.parse`.

    Attributes:
        enforce: whether anything is done; else what would be done is only written down.
        retries: recoveries of any kind before the run fails (jobMaxRetryCount).
        back: steps that `rollBack` goes back at least.
        skip: whether `rollBack` leaves out the batch that was to blame.
    """

    enforce: bool = False
    retries: int = 50
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    logs: tuple[LogRule, ...] = ()
    metrics: tuple[MetricRule, ...] = ()
    crash: Crash | None = None
    stall: Stall | None = None
    hang: Hang | None = None
    non_finite: NonFinite | None = None
    spike: Spike | None = None
    slow: SlowRank | None = None
    back: int = 1
    skip: bool = True

    @property
    def watches(self) -> bool:
        """Whether there is anything to look for."""
        parts: tuple[Any, ...] = (self.crash, self.stall, self.hang, self.non_finite, self.spike, self.slow)
        return bool(self.logs or self.metrics or any(part is not None for part in parts))

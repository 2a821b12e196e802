"""Numbers from the loop: not finite, far above their course, beyond a threshold."""

from __future__ import annotations

import math
import statistics
from collections import deque

from hpctools.elastic.recovery.findings import Finding
from hpctools.elastic.recovery.settings import MetricRule, NonFinite, Spike
from hpctools.elastic.watchers import Report, View

NORMAL_MAD = 1.4826  # the standard deviation of a normal distribution is so many median absolute deviations
ENOUGH = 5
FIRST_BAD = "first_nonfinite_step"
"""Number, from 1, of the first step whose loss was not finite; reports come less often than steps."""


class Finite:
    """A reported number is nan or infinite."""

    def __init__(self, settings: NonFinite) -> None:
        self._settings = settings

    def heard(self, now: float, report: Report) -> list[Finding]:
        """Look at the numbers."""
        for name in self._settings.metrics:
            value = report.metrics.get(name, 0.0)
            if not math.isfinite(value):
                return [self._finding(report, name, value)]
        return []

    def tick(self, now: float, view: View) -> list[Finding]:
        """Nothing: numbers come with reports."""
        return []

    def reset(self) -> None:
        """Nothing is remembered."""

    def _finding(self, report: Report, name: str, value: float) -> Finding:
        first, step = report.metrics.get(FIRST_BAD), report.step
        late = 0
        if first is not None and math.isfinite(first) and step is not None and 0 < first <= step:
            step, late = int(first), step - int(first)
        return Finding(
            "nonFinite",
            self._settings.do,
            f"{name} is {value}",
            name=name,
            worker=report.worker,
            node=report.node,
            step=step,
            late=late,
            numbers={name: value},
        )


class Course:
    """The loss is far above its recent course; numbers that are not finite are somebody else's matter."""

    def __init__(self, settings: Spike) -> None:
        self._settings = settings
        self._recent: deque[float] = deque(maxlen=settings.window)
        self._step = -1
        self._streak = 0

    def heard(self, now: float, report: Report) -> list[Finding]:
        """The loss of a further step has come."""
        value = report.metrics.get(self._settings.metric)
        if value is None or report.step is None or report.step <= self._step or not math.isfinite(value):
            return []
        self._step = report.step
        numbers = self._compared(value)
        if numbers is None:
            self._recent.append(value)
            self._streak = 0
            return []
        self._streak += 1
        if self._streak < self._settings.points:
            return []
        self._streak = 0
        return [self._finding(report, numbers)]

    def tick(self, now: float, view: View) -> list[Finding]:
        """After a step back, steps come again."""
        self._step = min(self._step, view.step)
        return []

    def reset(self) -> None:
        """The course stays what it was."""
        self._streak = 0

    def _compared(self, value: float) -> dict[str, float] | None:
        """What is wrong with the value, in numbers; None: nothing."""
        if len(self._recent) < ENOUGH:
            return None
        median = statistics.median(self._recent)
        spread = NORMAL_MAD * statistics.median(abs(each - median) for each in self._recent)
        ratio, deviations = self._settings.ratio, self._settings.deviations
        if ratio is not None and not value > ratio * median:
            return None
        if deviations is not None and not value > median + deviations * max(spread, 1e-3 * abs(median)):
            return None
        return {"value": value, "median": median, "deviation": spread}

    def _finding(self, report: Report, numbers: dict[str, float]) -> Finding:
        return Finding(
            "lossSpike",
            self._settings.do,
            f"{self._settings.metric} is {numbers['value']:.4g} after {numbers['median']:.4g}",
            step=report.step,
            numbers=numbers,
        )


class Metrics:
    """Thresholds on reported numbers, for each worker by itself."""

    def __init__(self, rules: tuple[MetricRule, ...]) -> None:
        self._rules = rules
        self._steps: dict[tuple[str, str], int] = {}
        self._streaks: dict[tuple[str, str], int] = {}

    def heard(self, now: float, report: Report) -> list[Finding]:
        """Numbers have come."""
        return [finding for rule in self._rules for finding in self._look(rule, report)]

    def tick(self, now: float, view: View) -> list[Finding]:
        """After a step back, steps come again."""
        self._steps = {key: min(step, view.step) for key, step in self._steps.items()}
        return []

    def reset(self) -> None:
        """Count anew."""
        self._streaks.clear()

    def _look(self, rule: MetricRule, report: Report) -> list[Finding]:
        value, key = report.metrics.get(rule.metric), (rule.name, report.worker)
        if value is None or report.step is None or report.step <= self._steps.get(key, -1):
            return []
        self._steps[key] = report.step
        self._streaks[key] = self._streaks.get(key, 0) + 1 if rule.threshold.is_bad(value) else 0
        if self._streaks[key] < rule.threshold.points:
            return []
        self._streaks[key] = 0
        limit = f"{rule.threshold.operator} {rule.threshold.value:g}"
        return [
            Finding(
                "metric",
                rule.do,
                f"{rule.metric} is {value:.4g} ({limit} {rule.threshold.points} times in a row)",
                name=rule.name,
                worker=report.worker,
                node=report.node,
                step=report.step,
                numbers={rule.metric: value, "threshold": rule.threshold.value},
            )
        ]

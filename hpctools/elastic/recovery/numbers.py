"""Numbers from the loop: not finite, far above their course, beyond a threshold."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator, Sequence

from hpctools.elastic.metrics import LOSS, OF_ALL
from hpctools.elastic.recovery.findings import Finding
from hpctools.elastic.recovery.settings import MetricRule, NonFinite, Spike
from hpctools.elastic.watchers import Report, View

NORMAL_MAD = 1.4826  # the standard deviation of a normal distribution is so many median absolute deviations
ENOUGH = 5
ENOUGH_TO_DEVIATE = 20  # of five numbers the median absolute deviation says next to nothing
FIRST_BAD = "first_nonfinite_step"
"""Number, from 1, of the first step whose loss was not finite; told again until the state is another one."""


class InSteps:
    """A number step by step, each step once, though reports come less often than steps.

    What a report tells of single steps is taken; a number of which it tells none is that of its last step.
    The loss is one for all workers, and told by one of them.
    """

    def __init__(self) -> None:
        self._judged: dict[str, int] = {}
        self._reached = 0

    def new(self, report: Report, name: str, whose: str = "") -> Iterator[tuple[int, float]]:
        """Steps that come for the first time, and the number's value in each; ascending.

        Args:
            name: of the number, always the same.
            whose: it is; with one name for all, whoever tells a step first is heard.
        """
        for step, value in _told(report, name):
            if step > self._judged.get(whose, -1):
                self._judged[whose] = step
                yield step, value

    def tick(self, view: View) -> None:
        """After a step back, steps come again."""
        if view.step < self._reached:
            self._judged = {whose: min(step, view.step) for whose, step in self._judged.items()}
        self._reached = view.step


def _whose(report: Report, name: str) -> str:
    return "" if name in OF_ALL else report.worker


def _blamed(report: Report, name: str) -> tuple[str, str]:
    """Worker and node that are to blame for a number, empty for what comes of all workers' samples.

    Else it would be who told it first, and another one's would be at the first rung again.
    """
    return ("", "") if name in OF_ALL else (report.worker, report.node)


def _told(report: Report, name: str) -> Sequence[tuple[int, float]]:
    value = report.metrics.get(name)
    if name in report.in_steps or name == LOSS or value is None or report.step is None:
        return report.in_steps.get(name, ())
    return ((report.step, value),)


class Finite:
    """A reported number is nan or infinite."""

    def __init__(self, settings: NonFinite) -> None:
        self._settings = settings

    def heard(self, now: float, report: Report) -> list[Finding]:
        """Look at the numbers."""
        for name in self._settings.metrics:
            value = report.metrics.get(name, 0.0)
            for step, each in report.in_steps.get(name, ()):
                if not math.isfinite(each):
                    return [self._finding(report, name, each, step)]
            if not math.isfinite(value):
                return [self._finding(report, name, value, _first_bad(report))]
        return []

    def tick(self, now: float, view: View) -> list[Finding]:
        """Nothing: numbers come with reports."""
        return []

    def reset(self, *, anew: bool = True) -> None:
        """Nothing is remembered."""

    def _finding(self, report: Report, name: str, value: float, step: int | None) -> Finding:
        worker, node = _blamed(report, name)
        return Finding(
            "nonFinite",
            self._settings.do,
            f"{name} is {value}",
            name=name,
            worker=worker,
            node=node,
            step=step,
            numbers={name: value},
        )


def _first_bad(report: Report) -> int | None:
    """The step that is to blame: whatever else is not finite, with or after the loss, came of that."""
    first, step = report.metrics.get(FIRST_BAD), report.step
    if first is not None and math.isfinite(first) and step is not None and 0 < first <= step:
        return int(first)
    return step


class Course:
    """The loss is far above its recent course; numbers that are not finite are somebody else's matter.

    A step that spikes is no part of the course. When a whole window of them has come in a row, nobody has set
    the training back: they are its course now. Where steps come again, those of the training that was given
    up are no part of it from there on: its loss had fallen further.
    """

    def __init__(self, settings: Spike) -> None:
        self._settings = settings
        self._recent: deque[tuple[int, float]] = deque(maxlen=settings.window)  # step and value, ascending
        self._steps = InSteps()
        self._streak: list[int] = []
        self._above: list[tuple[int, float]] = []

    def heard(self, now: float, report: Report) -> list[Finding]:
        """Look at each step that has come."""
        self._take_up()
        steps = self._steps.new(report, self._settings.metric)
        return [found for step, value in steps if (found := self._look(step, value)) is not None]

    def tick(self, now: float, view: View) -> list[Finding]:
        """After a step back, steps come again."""
        self._steps.tick(view)
        return []

    def reset(self, *, anew: bool = True) -> None:
        """The course stays what it was, up to the step that comes next, with which it goes on."""
        self._streak.clear()
        self._above.clear()

    def _look(self, step: int, value: float) -> Finding | None:
        self._give_up_from(step)
        if not math.isfinite(value):
            return None
        numbers = self._compared(value)
        if numbers is None:
            self._recent.append((step, value))
            self.reset()
            return None
        self._above.append((step, value))
        self._streak.append(step)
        if len(self._streak) < self._settings.points:
            return None
        first, self._streak = self._streak[0], []
        return self._finding(first, numbers)

    def _give_up_from(self, step: int) -> None:
        """The training went back, and does this step again, and all that came after it."""
        for numbers in (self._recent, self._above):
            while numbers and numbers[-1][0] >= step:
                numbers.pop()
        while self._streak and self._streak[-1] >= step:
            self._streak.pop()

    def _take_up(self) -> None:
        """Not within a report: it may tell many steps, and the first finding may lead to a roll back."""
        if len(self._above) >= max(self._settings.window, self._settings.points):
            self._recent.extend(self._above)
            self._above.clear()

    def _compared(self, value: float) -> dict[str, float] | None:
        """What is wrong with the value, in numbers; None: nothing."""
        if len(self._recent) < ENOUGH:
            return None
        recent = [value for _, value in self._recent]
        median = statistics.median(recent)
        spread = NORMAL_MAD * statistics.median(abs(each - median) for each in recent)
        ratio, deviations = self._criteria(median)
        if ratio is not None and not value > ratio * median:
            return None
        if deviations is not None and (
            len(recent) < min(self._settings.window, ENOUGH_TO_DEVIATE)
            or not value > median + deviations * max(spread, 1e-3 * abs(median))
        ):
            return None
        return {"value": value, "median": median, "deviation": spread}

    def _criteria(self, median: float) -> tuple[float | None, float | None]:
        """Ratio and deviations; a multiple says nothing of a loss that is not above 0."""
        ratio, deviations = self._settings.ratio, self._settings.deviations
        if ratio is None or median > 0:
            return ratio, deviations
        return None, Spike.deviations if deviations is None else deviations

    def _finding(self, step: int, numbers: dict[str, float]) -> Finding:
        return Finding(
            "lossSpike",
            self._settings.do,
            f"{self._settings.metric} is {numbers['value']:.4g} after {numbers['median']:.4g}",
            step=step,
            numbers=numbers,
        )


class Metrics:
    """Thresholds on reported numbers, for each worker by itself; on those of all for all of them together."""

    def __init__(self, rules: tuple[MetricRule, ...]) -> None:
        self._rules = tuple((rule, InSteps()) for rule in rules)
        self._streaks: dict[tuple[str, str], list[int]] = {}

    def heard(self, now: float, report: Report) -> list[Finding]:
        """Look at each step that has come."""
        return [
            found
            for rule, steps in self._rules
            for step, value in steps.new(report, rule.metric, _whose(report, rule.metric))
            if (found := self._look(rule, report, step, value)) is not None
        ]

    def tick(self, now: float, view: View) -> list[Finding]:
        """After a step back, steps come again."""
        for _, steps in self._rules:
            steps.tick(view)
        return []

    def reset(self, *, anew: bool = True) -> None:
        """Count anew."""
        self._streaks.clear()

    def _look(self, rule: MetricRule, report: Report, step: int, value: float) -> Finding | None:
        streak = self._streaks.setdefault((rule.name, _whose(report, rule.metric)), [])
        if not rule.threshold.is_bad(value):
            streak.clear()
            return None
        streak.append(step)
        if len(streak) < rule.threshold.points:
            return None
        first = streak[0]
        streak.clear()
        limit = f"{rule.threshold.operator} {rule.threshold.value:g}"
        worker, node = _blamed(report, rule.metric)
        return Finding(
            "metric",
            rule.do,
            f"{rule.metric} is {value:.4g} ({limit} {rule.threshold.points} times in a row)",
            name=rule.name,
            worker=worker,
            node=node,
            step=first,
            numbers={rule.metric: value, "threshold": rule.threshold.value},
        )

"""Steps that do not come: a stalled step, a hang; and workers that are slower than the others."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence

from hpctools.elastic.recovery.findings import ActiveTime, Finding
from hpctools.elastic.recovery.settings import OWN_TIME, OWN_TIMES, Hang, SlowRank, Stall
from hpctools.elastic.watchers import Report, View

REMEMBERED = 50
ENOUGH = 3
MOST_SIZES = 16


class StepTimes:
    """How long the last steps took, for each number of workers by itself: with fewer a step takes longer.

    A run that comes back to a size knows what is usual there. Of more than `MOST_SIZES` sizes, the one
    without a step for longest is forgotten.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, deque[float]] = {}

    def add(self, world: int, seconds: float) -> None:
        """A step of so many workers took so long."""
        seen = self._seconds.pop(world, None) or deque(maxlen=REMEMBERED)
        seen.append(seconds)
        self._seconds[world] = seen  # the newest is the last one
        if len(self._seconds) > MOST_SIZES:
            del self._seconds[next(iter(self._seconds))]

    def median(self, world: int) -> float | None:
        """What is usual with so many workers; None: too few steps were seen."""
        seen = self._seconds.get(world, ())
        return statistics.median(seen) if len(seen) >= ENOUGH else None


class Pace:
    """A step takes far longer than the last ones (`stall`), or longer than anything may (`hang`).

    Time in which the run waits for nodes does not count, and a stall is only seen within a generation: the
    pause of a resize is none, nor the start of ranks up to their first step, nor what a worker does between
    two passes of its loop. It is measured by steps with as many workers.
    """

    def __init__(self, stall: Stall | None, hang: Hang | None) -> None:
        self._stall = stall
        self._hang = hang
        self._time = ActiveTime()
        self._times = StepTimes()
        self._step: int | None = None
        self._generation = 0
        self._begins = False
        self._since = 0.0
        self._no_stall_until = 0.0
        self._told: set[str] = set()  # causes, since the last step

    def heard(self, now: float, report: Report) -> list[Finding]:
        """Nothing: steps are seen by the run's view."""
        return []

    def tick(self, now: float, view: View) -> list[Finding]:
        """Whether the present step takes too long."""
        time = self._time.tick(now, view)
        self._note(time, view)
        usual = self._times.median(view.world)
        limit, finding = self._limit(time, usual)
        if limit is None or finding is None or finding[0] in self._told:
            return []
        self._told.add(finding[0])
        worker, node = _behind(view)
        numbers = {"seconds": round(time - self._since, 2), "limit_s": round(limit, 2)}
        numbers |= {} if usual is None else {"median_s": round(usual, 4)}
        why = f"no step for {time - self._since:.1f} s, the limit is {limit:.1f} s"
        why += " (between two passes of the loop)" if _is_between(view) else ""
        return [Finding(*finding, why, worker=worker, node=node, step=view.step, numbers=numbers)]

    def reset(self, *, anew: bool = True) -> None:
        """The clock begins anew."""
        self._since = self._no_stall_until = self._time.seconds
        self._told.clear()

    def _note(self, time: float, view: View) -> None:
        steps = 0 if self._step is None else view.step - self._step
        if steps > 0 and self._generation == view.generation and not self._begins:
            self._times.add(view.world, (time - max(self._since, self._no_stall_until)) / steps)
        if view.generation != self._generation or view.phase != "running" or view.begins or _is_between(view):
            self._no_stall_until = time
        if steps != 0 or self._step is None:
            self._since = time
            self._told.clear()
        self._step, self._generation, self._begins = view.step, view.generation, view.begins

    def _limit(
        self, time: float, usual: float | None
    ) -> tuple[float | None, tuple[str, tuple[str, ...]] | None]:
        if self._hang is not None and time - self._since > self._hang.seconds:
            return self._hang.seconds, ("hang", self._hang.do)
        if self._stall is None or usual is None:
            return None, None
        limit = max(self._stall.seconds, self._stall.ratio * usual)
        if time - max(self._since, self._no_stall_until) > limit:
            return limit, ("stalledStep", self._stall.do)
        return None, None


class Slow:
    """A worker whose own time is far above the others', again and again.

    Workers have shards of different sizes, and a shard takes some time whatever its size. So both have to be
    too long, the time for a shard and the time for a sample: the first alone would blame who has a large one,
    the second alone who has a small one.
    """

    def __init__(self, slow: SlowRank) -> None:
        self._slow = slow
        self._names = OWN_TIMES if slow.metric == OWN_TIME else (slow.metric,)
        self._latest: dict[str, tuple[int, tuple[float, ...]]] = {}
        self._streaks: dict[str, int] = {}

    def heard(self, now: float, report: Report) -> list[Finding]:
        """A worker's time for its last steps has come."""
        worker = report.worker
        values = tuple(report.metrics[name] for name in self._names if name in report.metrics)
        if len(values) < len(self._names) or report.step is None or self._is_old(worker, report.step):
            return []
        self._latest[worker] = (report.step, values)
        others = [times for name, (_, times) in self._latest.items() if name != worker]
        if not others:
            return []
        medians = [statistics.median(times) for times in zip(*others, strict=True)]
        is_slow = all(value > self._slow.ratio * each for value, each in zip(values, medians, strict=True))
        self._streaks[worker] = self._streaks.get(worker, 0) + 1 if is_slow else 0
        if self._streaks[worker] < self._slow.points:
            return []
        self._streaks[worker] = 0
        return [self._finding(report, values, medians)]

    def tick(self, now: float, view: View) -> list[Finding]:
        """Who is gone is no measure any more."""
        names = {member.worker for member in view.members}
        self._latest = {name: seen for name, seen in self._latest.items() if name in names}
        return []

    def reset(self, *, anew: bool = True) -> None:
        """Compare anew."""
        self._latest.clear()
        self._streaks.clear()

    def _is_old(self, worker: str, step: int) -> bool:
        return worker in self._latest and step <= self._latest[worker][0]

    def _finding(self, report: Report, values: Sequence[float], medians: Sequence[float]) -> Finding:
        numbers = {"points": float(self._slow.points)}
        for name, value, median in zip(self._names, values, medians, strict=True):
            numbers |= {name: value, f"median_{name}": median}
        compared = zip(self._names, values, medians, strict=True)
        said = ", ".join(f"{name} {value:.3g} ({median:.3g})" for name, value, median in compared)
        return Finding(
            "slowRank",
            self._slow.do,
            f"{report.worker} is slower than the others (their median): {said}",
            worker=report.worker,
            node=report.node,
            step=report.step,
            numbers=numbers,
        )


def _is_between(view: View) -> bool:
    """Whether somebody validates, or does whatever else stands between two passes; all others wait for it."""
    return any(member.trains and member.between for member in view.members)


def _behind(view: View) -> tuple[str, str]:
    """Who keeps the others waiting, when it is one only."""
    training = [member for member in view.members if member.trains]
    waited_for = [member for member in training if not member.waits]
    if len(training) == 1 or len(waited_for) != 1:
        waited_for = training if len(training) == 1 else []
    return (waited_for[0].worker, waited_for[0].node) if waited_for else ("", "")

"""Log rules in the coordinator: what the matchers of all nodes told, and what none of them told in time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from hpctools.elastic.recovery.findings import ActiveTime, Finding
from hpctools.elastic.recovery.settings import LogRule
from hpctools.elastic.watchers import Report, View

OVER = "log_rule_over"
"""The event that says so: another coordinator has not heard the line, nor the agent, which may be gone."""


@dataclass
class _State:
    rule: LogRule
    matched: float | None = None
    began: float = 0.0
    active: bool = True
    told: bool = False
    begun: bool = False
    warned: bool = False


class Logs:
    """The rules of logMonitoringConfiguration, for the run as a whole: one worker that prints is enough.

    Args:
        note: writes into the run's history: warnings of rules that are given up, and which rules are over.
        begun: the training began under an earlier coordinator: whether a line came then is not known, and
            what is printed once, at the start, does not come again.
        over: names of rules that were over under an earlier coordinator.
    """

    def __init__(
        self,
        rules: tuple[LogRule, ...],
        note: Callable[..., None],
        *,
        begun: bool = False,
        over: Collection[str] = (),
    ) -> None:
        self._note = note
        self._time = ActiveTime()
        self._lossy: set[str] = set()  # nodes that were warned of
        self._states = {rule.name: _State(rule, begun=begun, active=rule.name not in over) for rule in rules}

    def heard(self, now: float, report: Report) -> list[Finding]:
        """A matcher has told of a rule: how many lines, the last number, how many bad ones in a row."""
        if report.kind != "log":
            return []
        if report.metrics.get("dropped"):
            self._excuse()
            self._warn_of_loss(report)
        state = self._states.get(report.what)
        if state is None or not state.active:
            return []
        if report.metrics.get("given_up"):
            self._give_up(state, report)
            return []
        if report.metrics.get("no_number"):
            self._warn_of_words(state, report)
            return []
        finding = self._judge(state, report)
        if report.metrics.get("stopped"):
            self._is_over(state, "stopped")
        return [finding] if finding is not None else []

    def tick(self, now: float, view: View) -> list[Finding]:
        """Whether a line is overdue; nobody hears the lines of a node whose agent is mute."""
        time = self._time.tick(now, view)
        if any(each.mute for each in view.members):
            self._excuse()
        return [finding for state in self._states.values() if (finding := self._overdue(state, time))]

    def reset(self, *, anew: bool = True) -> None:
        """The training begins again, and the rules with it; or it goes on, with what was printed before."""
        if not anew:
            self._excuse()
        for state in self._states.values():
            state.told = False
            if anew:
                state.began, state.matched, state.begun = self._time.seconds, None, False

    def _excuse(self) -> None:
        """A line may have come and was not seen: the time begins anew."""
        for each in self._states.values():
            each.matched = self._time.seconds if each.matched is not None else None
            each.began = self._time.seconds

    def _judge(self, state: _State, report: Report) -> Finding | None:
        rule, metrics = state.rule, report.metrics
        if metrics.get("matched") and not report.past:
            state.matched, state.told = self._time.seconds, False
        points = rule.threshold.points if rule.threshold is not None else 1
        line = report.lines[-1] if report.lines else ""
        if rule.fault and metrics.get("matched"):
            return replace(_finding(rule, f"a worker printed: {line}", report), once=True)
        if metrics.get("streak", 0.0) >= points:
            return _finding(rule, f"{points} bad values in a row, the last in: {line}", report)
        return None

    def _overdue(self, state: _State, time: float) -> Finding | None:
        rule = state.rule
        limit = _first_limit(state) if state.matched is None else rule.every_s
        since = state.began if state.matched is None else state.matched
        if limit is None or not state.active or state.told or time - since <= limit:
            return None
        state.told = True
        what = "no line" if state.matched is None else "no further line"
        numbers = {"seconds": round(time - since, 2), "limit_s": limit}
        return _finding(rule, f"{what} matched for {time - since:.1f} s", None, numbers)

    def _give_up(self, state: _State, report: Report) -> None:
        line = f"; the last line: {report.lines[-1]}" if report.lines else ""
        self._note(
            "warning",
            message=f"log rule {state.rule.name} is given up: its expression takes too long "
            f"(on {report.node}){line}",
        )
        self._is_over(state, "given up")

    def _warn_of_loss(self, report: Report) -> None:
        """Nothing is taken for silence; but a line that is a fault may have been among them."""
        if report.node not in self._lossy:
            self._lossy.add(report.node)
            self._note(
                "warning",
                message=f"lines on {report.node} could not be looked at (they came too fast, or the matcher "
                "ended): log rules may have missed some",
            )

    def _warn_of_words(self, state: _State, report: Report) -> None:
        line = f"; the last line: {report.lines[-1]}" if report.lines else ""
        if not state.warned:
            self._note(
                "warning",
                message=f"log rule {state.rule.name} captures no numbers, so none is judged: its group has "
                f"to match a number and nothing else{line}",
            )
        state.warned = True

    def _is_over(self, state: _State, why: str) -> None:
        state.active = False
        self._note(OVER, rule=state.rule.name, why=why)


def over_before(events: Collection[Any]) -> frozenset[str]:
    """Names of the rules that earlier coordinators knew to be over."""
    return frozenset(str(each.detail.get("rule")) for each in events if each.event == OVER)


def _first_limit(state: _State) -> float | None:
    """Seconds to the first line; where it may have come unseen, only what comes again can be overdue."""
    start, every = state.rule.start_s, state.rule.every_s
    if not state.begun or start is None:
        return start
    return None if every is None else max(start, every)


def _finding(
    rule: LogRule, why: str, report: Report | None, numbers: dict[str, float] | None = None
) -> Finding:
    return Finding(
        "log",
        rule.do,
        why,
        name=rule.name,
        worker=report.worker if report is not None else "",
        node=report.node if report is not None else "",
        step=report.step if report is not None else None,
        numbers=numbers if numbers is not None else dict(report.metrics) if report is not None else {},
    )

"""What log rules find in what the matchers told, and in what none of them told in time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hpctools.elastic.recovery.findings import Finding
from hpctools.elastic.recovery.log_rules import Logs
from hpctools.elastic.recovery.settings import LogRule, Threshold
from hpctools.elastic.watchers import MemberView, Report, View

TICK = 0.1


def log(what: str, worker: str = "b0.0.0", line: str = "a line", **metrics: float) -> Report:
    return Report("log", worker, "n1", metrics=metrics, lines=(line,), what=what)


class LogRun:
    """Log rules in a run that trains for a while."""

    def __init__(self, *rules: LogRule, begun: bool = False, over: tuple[str, ...] = ()) -> None:
        self.warnings: list[str] = []
        self.over: list[tuple[str, str]] = []
        self.logs = Logs(rules, self.note, begun=begun, over=over)
        self.now = 0.0

    def note(self, event: str, **detail: str) -> None:
        if event == "warning":
            self.warnings.append(detail["message"])
        else:
            assert event == "log_rule_over"
            self.over.append((detail["rule"], detail["why"]))

    def passes(
        self, seconds: float, phase: str = "running", members: tuple[MemberView, ...] = ()
    ) -> list[Finding]:
        found, end = [], self.now + seconds
        while self.now < end:
            self.now += TICK
            found += self.logs.tick(self.now, View(1, 1, 1, phase, members))
        return found


def test_a_line_that_does_not_come_and_one_that_does_not_come_again() -> None:
    run = LogRun(LogRule("steps", "step", start_s=10.0, every_s=5.0))
    assert run.passes(9.0) == []
    (late,) = run.passes(20.0)
    assert (late.cause, late.name, late.worker, late.why) == (
        "log",
        "steps",
        "",
        "no line matched for 10.1 s",
    )
    run.logs.heard(run.now, log("steps", matched=2.0))
    assert run.passes(4.5) == []
    assert run.passes(1000.0, phase="waiting") == []
    assert [each.why for each in run.passes(2.0)] == ["no further line matched for 5.1 s"]
    run.logs.reset()
    assert run.passes(9.0) == []
    assert len(run.passes(2.0)) == 1


def test_a_fault_a_slow_number_and_one_that_is_not_finite() -> None:
    run = LogRun(
        LogRule("oom", "x", fault=True),
        LogRule("slow", "x", threshold=Threshold(80.0, "lt", 3)),
        LogRule("loss", "x"),
    )
    (oom,) = run.logs.heard(0.0, log("oom", matched=1.0, line="OutOfMemoryError"))
    assert (oom.worker, oom.node, oom.why) == ("b0.0.0", "n1", "a worker printed: OutOfMemoryError")
    assert run.logs.heard(0.0, log("slow", matched=9.0, streak=2.0, value=70.0)) == []
    (slow,) = run.logs.heard(0.0, log("slow", matched=9.0, streak=3.0, value=70.0))
    assert slow.why == "3 bad values in a row, the last in: a line"
    assert run.logs.heard(0.0, log("loss", matched=1.0, streak=0.0, value=1e30)) == []
    assert len(run.logs.heard(0.0, log("loss", matched=1.0, streak=1.0, value=math.nan))) == 1


def test_while_an_agent_is_mute_nobody_knows_what_its_workers_print() -> None:
    run = LogRun(LogRule("steps", "step", start_s=10.0, every_s=5.0))
    run.logs.heard(run.now, log("steps", matched=1.0))
    mute = MemberView("w0", "n0", 1, 0.0, trains=True, mute=True)
    assert run.passes(100.0, members=(mute,)) == []
    assert run.passes(4.5) == []
    assert [each.why for each in run.passes(1.0)] == ["no further line matched for 5.1 s"]


def test_stopped_given_up_and_dropped() -> None:
    run = LogRun(
        LogRule("a", "x", every_s=5.0), LogRule("b", "x", start_s=5.0), LogRule("c", "x", start_s=5.0)
    )
    run.logs.heard(0.0, log("a", matched=1.0, stopped=1.0))
    run.logs.heard(0.0, log("b", given_up=1.0, line="aaaa"))
    assert len(run.warnings) == 1
    assert "log rule b is given up" in run.warnings[0]
    run.passes(4.0)
    run.logs.heard(run.now, log("", dropped=300.0))
    assert run.passes(4.5) == [], "lines were lost: nobody knows whether one matched"
    assert [each.name for each in run.passes(1.0)] == ["c"]


def test_lines_that_nobody_looked_at_are_told_of_once_for_each_node() -> None:
    """The fault that a rule waits for may have been among them."""
    run = LogRun(LogRule("oom", "x", fault=True))
    for node in ("n1", "n2", "n1"):
        assert run.logs.heard(0.0, replace(log("", dropped=300.0), node=node)) == []
    assert [each.split(" could")[0] for each in run.warnings] == ["lines on n1", "lines on n2"]


def test_a_rule_that_captures_no_numbers_is_warned_of_once_for_all_nodes() -> None:
    run = LogRun(LogRule("loss", "x", threshold=Threshold(2.5, "gt")))
    for worker in ("b0.0.0", "r7.0.0"):
        assert run.logs.heard(0.0, log("loss", worker, line="loss: 2.1, lr: 1", no_number=1.0)) == []
    assert run.warnings == [
        "log rule loss captures no numbers, so none is judged: its group has to match a number and nothing "
        "else; the last line: loss: 2.1, lr: 1"
    ]


def test_a_recovery_in_which_the_training_goes_on_is_no_new_beginning() -> None:
    run = LogRun(LogRule("start", "x", start_s=10.0), LogRule("steps", "x", start_s=10.0, every_s=5.0))
    for name in ("start", "steps"):
        run.logs.heard(run.now, log(name, matched=1.0))
    assert [each.name for each in run.passes(6.0)] == ["steps"]
    run.logs.reset(anew=False)
    assert run.passes(4.5) == []
    assert [each.why for each in run.passes(20.0)] == ["no further line matched for 5.1 s"]


@pytest.mark.parametrize(
    ("start", "every", "found"), [(10.0, None, []), (10.0, 5.0, [10]), (5.0, 20.0, [20]), (None, 5.0, [])]
)
def test_after_a_takeover_only_a_line_that_comes_again_can_be_overdue(
    start: float | None, every: float | None, found: list[int]
) -> None:
    run = LogRun(LogRule("steps", "x", start_s=start, every_s=every), begun=True)
    assert [int(each.numbers["seconds"]) for each in run.passes(60.0)] == found
    run.logs.reset()
    assert len(run.passes(60.0)) == (start is not None), "all began again"


def test_rules_that_are_over_are_noted_once_and_are_over_for_who_takes_over() -> None:
    rules = (LogRule("a", "x", every_s=5.0), LogRule("b", "x", every_s=5.0), LogRule("c", "x", every_s=5.0))
    run = LogRun(*rules)
    for _ in range(2):  # each agent's hello tells it again
        run.logs.heard(0.0, log("a", stopped=1.0, matched=1.0))
        run.logs.heard(0.0, log("b", given_up=1.0))
    assert run.over == [("a", "stopped"), ("b", "given up")]
    assert len(run.warnings) == 1
    later = LogRun(*rules, begun=True, over=("a", "b"))
    for rule in rules:
        later.logs.heard(0.0, log(rule.name, matched=1.0))
    assert [each.name for each in later.passes(20.0)] == ["c"]
    assert later.over == []

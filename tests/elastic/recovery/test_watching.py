"""The policy as the coordinator's watcher: what it asks for, and what it leaves alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpctools.elastic.actions import Fail, ReplaceNode, RestartAll, RestartWorker, RollBack
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.recovery import watchers_of
from hpctools.elastic.recovery.watching import RecoveryWatcher
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.watchers import MemberView, Report, View
from hpctools.elastic.watching import in_steps_of

HIGH = {"name": "high", "metric": "loss", "metricThreshold": 50.0, "operator": "gt"}
NAN_RULE = {"metrics": {"nonFinite": True}, "runPolicy": {"mode": "enforce"}}


def spec(recovery: dict[str, Any]) -> RunSpec:
    return RunSpec(
        id="r",
        name="r",
        user="u",
        cluster="",
        min_nodes=1,
        max_nodes=2,
        workers_per_node=1,
        command=("true",),
        workdir="/",
        replica_options=(),
        replica_script="/r",
        created="",
        recovery=recovery,
    )


def made(tmp_path: Path, recovery: dict[str, Any]) -> tuple[RecoveryWatcher, RunFolder]:
    path = tmp_path / "run"
    folder = RunFolder(path) if path.exists() else RunFolder.create(path, spec(recovery))
    (watcher,) = watchers_of(spec(recovery), folder, 0.0)
    return watcher, folder


def view(step: int, generation: int = 1, phase: str = "running") -> View:
    return View(step, 1, generation, phase, (MemberView("w0", "n0", step, 0.0, True),))


def loss(step: int, value: float) -> Report:
    return Report("beat", "w0", "n0", step, {"loss": value}, {"loss": ((step, value),)})


def test_without_a_policy_nobody_watches(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", spec({}))
    assert watchers_of(spec({}), folder, 0.0) == []


def test_in_mode_log_it_is_only_written_down_and_not_in_every_beat(tmp_path: Path) -> None:
    watcher, folder = made(tmp_path, {"metrics": {"nonFinite": True}})
    watcher.tick(0.0, view(5))
    for beat in range(100):
        assert watcher.heard(0.25 * beat, loss(5 + beat, math.nan)) == []
    (event,) = folder.events()
    assert event.detail == {
        "cause": "nonFinite",
        "name": "loss",
        "worker": "",
        "node": "",
        "step": 5,
        "why": "loss is nan",
        "numbers": {"loss": "nan"},
        "rung": "rollBack",
        "ladder": "time 1 in 3600 s",
        "counts": True,
        "mode": "log",
    }
    assert len(watcher.heard(61.0, loss(106, math.nan))) == 0
    assert [each.detail["rung"] for each in folder.events()] == ["rollBack", "restartAll"]
    for line in (folder.path / "events.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda word: (_ for _ in ()).throw(ValueError(word)))


@pytest.mark.parametrize("counter", [{"jobMaxRetryCount": 2}, {"restartPolicy": {"maxFullJobRestarts": 1}}])
def test_in_mode_log_no_counter_is_used_up(tmp_path: Path, counter: dict[str, Any]) -> None:
    """A finding every two hours: each is the first of its period, and nothing was done about those before."""
    rules = {"nonFinite": {"do": ["restartAll", "fail"]}}
    watcher, folder = made(tmp_path, {"metrics": rules, "runPolicy": counter})
    for turn in range(4):
        watcher.tick(7200.0 * turn, view(5))
        watcher.heard(7200.0 * turn, loss(5 + turn, math.nan))
    assert [each.detail["rung"] for each in folder.events()] == ["restartAll"] * 4
    later, _ = made(tmp_path, {"metrics": rules, "runPolicy": counter})
    later.tick(7200.0, view(9))
    later.heard(7200.0, loss(9, math.nan))
    assert folder.events()[-1].detail["rung"] == "restartAll"


def test_enforced_it_acts_once_and_looks_away_until_the_run_has_changed(tmp_path: Path) -> None:
    """Beats of the time before the step back must not lead to a second one."""
    watcher, folder = made(tmp_path, NAN_RULE)
    watcher.tick(0.0, view(5))
    (action,) = watcher.heard(0.1, loss(6, math.nan))
    assert isinstance(action, RollBack)
    assert (action.steps, action.skip, action.blamed) == (1, True, 6)
    for beat in range(8):
        assert watcher.heard(0.2 + 0.25 * beat, loss(7 + beat, math.nan)) == []
        assert watcher.tick(0.2 + 0.25 * beat, view(7 + beat)) == []
    watcher.tick(3.0, view(5, generation=2))
    (again,) = watcher.heard(3.1, loss(7, math.nan))
    assert isinstance(again, RestartAll)
    watcher.tick(4.0, view(1, generation=3))
    (last,) = watcher.heard(4.1, loss(2, math.nan))
    assert isinstance(last, Fail)
    assert last.code == 43
    assert watcher.heard(4.2, loss(2, math.nan)) == [], "the end is asked for once"
    assert [event.detail["rung"] for event in folder.events()] == ["rollBack", "restartAll", "fail"]


TOO_LATE = Report("no_way_back", "w0", "n0", 9, what="no state of at most 5 steps is kept")


def test_a_roll_back_that_cannot_be_done_is_the_next_rung_of_the_same_rule(tmp_path: Path) -> None:
    """Who asks for it looks away from everything else meanwhile; a later coordinator knows both rungs."""
    watcher, folder = made(tmp_path, NAN_RULE)
    watcher.tick(0.0, view(5))
    assert [type(each) for each in watcher.heard(0.1, loss(6, math.nan))] == [RollBack]
    assert [type(each) for each in watcher.heard(1.0, TOO_LATE)] == [RestartAll]
    assert watcher.heard(1.1, loss(6, math.nan)) == []
    told = [(each.detail["cause"], each.detail["rung"], each.detail["ladder"]) for each in folder.events()]
    assert told == [
        ("nonFinite", "rollBack", "time 1 in 3600 s"),
        ("nonFinite", "restartAll", "rollBack cannot be done: no state of at most 5 steps is kept"),
    ]
    later, _ = made(tmp_path, NAN_RULE)
    later.tick(0.0, view(5))
    (action,) = later.heard(0.1, loss(6, math.nan))
    assert isinstance(action, Fail)


def test_who_has_not_asked_for_it_itself_restarts_all(tmp_path: Path) -> None:
    watcher, _ = made(tmp_path, NAN_RULE)
    assert [type(each) for each in watcher.heard(1.0, TOO_LATE)] == [RestartAll]


def test_where_nothing_at_all_is_kept_all_begin_again_and_print_what_they_print_at_a_start(
    tmp_path: Path,
) -> None:
    watcher, _ = made(tmp_path, JOB_START)
    watcher.tick(0.0, view(0))
    watcher.heard(1.0, LINE)
    assert [type(each) for each in watcher.heard(5.0, loss(6, math.nan))] == [RollBack]
    assert watcher.heard(5.5, replace(TOO_LATE, step=None)) == [], "that is done already"
    assert quiet(watcher, 6, generation=2) != []


@pytest.mark.parametrize("name", ["loss", "grad_norm", "grad_finite"])
@pytest.mark.parametrize("finite", [False, True])
def test_what_is_wrong_with_a_number_of_all_blames_no_node_whoever_tells_it_first(
    name: str, finite: bool, tmp_path: Path
) -> None:
    """Told by another worker the next time, it is the same finding's next rung."""
    rule = {"rules": [{**HIGH, "metric": name}]} if finite else {"nonFinite": {"metrics": [name]}}
    watcher, _ = made(tmp_path, {"metrics": rule, "runPolicy": {"mode": "enforce"}})

    def report(step: int, worker: str) -> Report:
        value = 90.0 if finite else math.nan
        in_steps = {name: ((step, value),)} if name == "loss" else {}
        return Report("beat", f"w{worker}", f"n{worker}", step, {name: value}, in_steps)

    watcher.tick(0.0, view(5))
    (first,) = watcher.heard(0.1, report(6, "0"))
    assert isinstance(first, RollBack)
    watcher.tick(3.0, view(5, generation=2))
    (action,) = watcher.heard(3.1, report(7, "1"))
    assert isinstance(action, RestartAll)


def test_a_rule_on_the_loss_passes_over_what_needs_a_culprit(tmp_path: Path) -> None:
    rule = {**HIGH, "do": ["replaceNode", "rollBack"]}
    watcher, _ = made(tmp_path, {"metrics": {"rules": [rule]}, "runPolicy": {"mode": "enforce"}})
    watcher.tick(0.0, view(5))
    (action,) = watcher.heard(0.1, loss(6, 90.0))
    assert isinstance(action, RollBack)


def test_when_nothing_follows_from_an_action_it_is_found_again(tmp_path: Path) -> None:
    watcher, _ = made(tmp_path, NAN_RULE)
    watcher.tick(0.0, view(5))
    assert len(watcher.heard(0.1, loss(6, math.nan))) == 1
    watcher.tick(59.0, view(6))
    assert watcher.heard(59.1, loss(7, math.nan)) == []
    watcher.tick(61.0, view(6))
    assert len(watcher.heard(61.1, loss(8, math.nan))) == 1


def test_a_second_coordinator_goes_on_with_the_ladder(tmp_path: Path) -> None:
    first, _ = made(tmp_path, NAN_RULE)
    first.tick(0.0, view(5))
    first.heard(0.1, loss(6, math.nan))
    second, _ = made(tmp_path, NAN_RULE)
    second.tick(0.0, view(5))
    (action,) = second.heard(0.1, loss(6, math.nan))
    assert isinstance(action, RestartAll)


def test_crashes_are_dealt_with_even_while_it_looks_away(tmp_path: Path) -> None:
    """Two workers of a node end together; both are started again."""
    watcher, _ = made(tmp_path, {"metrics": {"crash": True}, "runPolicy": {"mode": "enforce"}})
    exits = [Report("exit", f"w{n}", "n0", code=1, lines=("ValueError: x",)) for n in range(2)]
    assert all(watcher.handles(each) for each in exits)
    actions = [action for each in exits for action in watcher.heard(1.0, each)]
    assert [action.worker for action in actions if isinstance(action, RestartWorker)] == ["w0", "w1"]
    assert watcher.heard(1.0, Report("exit", "w2", "n0", code=0)) == []


def test_a_crashed_worker_is_started_again_with_all_others(tmp_path: Path) -> None:
    """RestartAll ends what runs; the one that has ended would stay so."""
    policy = {"metrics": {"crash": {"do": ["restartAll"]}}, "runPolicy": {"mode": "enforce"}}
    watcher, _ = made(tmp_path, policy)
    actions = watcher.heard(1.0, Report("exit", "w1", "n0", code=1))
    assert [type(action) for action in actions] == [RestartAll, RestartWorker]
    assert isinstance(actions[1], RestartWorker)
    assert (actions[1].worker, actions[1].code) == ("w1", 40), "it does not end with another code for that"


def test_only_an_enforced_rule_takes_ends_of_processes_from_the_coordinator(tmp_path: Path) -> None:
    report = Report("exit", "w0", "n0", code=1)
    assert not made(tmp_path / "a", {"metrics": {"crash": True}})[0].handles(report)
    assert not made(tmp_path / "b", NAN_RULE)[0].handles(report)


def test_a_full_disk_stops_no_recovery(tmp_path: Path) -> None:
    watcher, folder = made(tmp_path, NAN_RULE)
    (folder.path / "events.jsonl").mkdir()
    watcher.tick(0.0, view(5))
    assert len(watcher.heard(0.1, loss(6, math.nan))) == 1


def test_the_loss_of_a_worker_of_an_earlier_release_is_judged_as_it_was() -> None:
    """It tells the last one with each sign of life, and in which step."""
    assert in_steps_of({"rank": 0, "step": 7, "loss": 0.5}) == {"loss": ((7, 0.5),)}
    assert in_steps_of({"rank": 1, "step": 7, "loss": 0.5}) == {}
    assert in_steps_of({"rank": 0, "step": 7, "loss": 0.5, "in_steps": {}}) == {}
    assert in_steps_of({"in_steps": {"loss": [[6, 0.4], [7, 0.5]]}}) == {"loss": ((6, 0.4), (7, 0.5))}


JOB_START = {
    "runPolicy": {
        "mode": "enforce",
        "logMonitoringConfiguration": [
            {"name": "JobStart", "logPattern": ".*Training began.*", "expectedStartCutOffInSeconds": 120}
        ],
    },
    "metrics": {"crash": True, "nonFinite": True},
}
LINE = Report("log", "w0", "n0", metrics={"matched": 1.0}, lines=("Training began",), what="JobStart")


def quiet(watcher: RecoveryWatcher, since: int, generation: int) -> list[Any]:
    """What is asked for in 300 s in which all is well."""
    ticks = range(since, since + 300)
    return [each for now in ticks for each in watcher.tick(float(now), view(now, generation))]


@pytest.mark.parametrize("report", [Report("exit", "w1", "n0", code=1), loss(6, math.nan)])
def test_what_is_printed_once_is_not_missed_after_a_recovery_that_goes_on(
    tmp_path: Path, report: Report
) -> None:
    """Another worker is started again, or the state goes back: the first one does not print it again."""
    watcher, _ = made(tmp_path, JOB_START)
    watcher.tick(0.0, view(0))
    assert watcher.heard(1.0, LINE) == []
    (action,) = watcher.heard(5.0, report)
    assert isinstance(action, (RestartWorker, RollBack))
    assert quiet(watcher, 6, generation=2) == []


def test_what_is_printed_once_is_not_missed_by_the_next_coordinator(tmp_path: Path) -> None:
    _, folder = made(tmp_path, JOB_START)
    folder.append_event("joined", worker="b1.0.0", node="n0", generation=1)
    assert quiet(made(tmp_path, JOB_START)[0], 6, generation=2) == []


def test_what_is_printed_at_each_start_is_missed_after_a_restart_of_all(tmp_path: Path) -> None:
    policy = {**JOB_START, "metrics": {"nonFinite": {"do": ["restartAll", "fail"]}}}
    watcher, _ = made(tmp_path, policy)
    watcher.tick(0.0, view(0))
    watcher.heard(1.0, LINE)
    assert [type(each) for each in watcher.heard(5.0, loss(6, math.nan))] == [RestartAll]
    assert quiet(watcher, 6, generation=2) != []


RESTARTS_ALL = {**JOB_START, "metrics": {"nonFinite": {"do": ["restartAll", "fail"]}}}


@pytest.mark.parametrize("begins", ["at once", "late"])
def test_what_is_printed_before_the_training_begins_again_is_not_missed(tmp_path: Path, begins: str) -> None:
    """A script prints it first, and then loads its data; the rule would end the run, which is well."""
    watcher, _ = made(tmp_path, RESTARTS_ALL)
    watcher.tick(0.0, view(0))
    watcher.heard(1.0, LINE)
    assert [type(each) for each in watcher.heard(5.0, loss(6, math.nan))] == [RestartAll]
    starting = View(0, 0, 0, "starting")
    for now in range(6, 20 if begins == "at once" else 100):
        if now == 15:
            watcher.heard(15.0, replace(LINE, worker="b0.0.1"))
        assert watcher.tick(float(now), starting) == []
    assert quiet(watcher, 100, generation=2) == []


def test_what_was_printed_before_all_were_ended_is_of_no_process_that_begins(tmp_path: Path) -> None:
    watcher, _ = made(tmp_path, RESTARTS_ALL)
    watcher.tick(0.0, view(0))
    watcher.heard(1.0, LINE)
    watcher.heard(5.0, loss(6, math.nan))
    watcher.heard(5.2, LINE)
    assert quiet(watcher, 6, generation=2) != []


def test_a_line_that_comes_again_is_waited_for_anew_when_all_begin_again_for_want_of_state(
    tmp_path: Path,
) -> None:
    """No rule has asked for it: nobody is left who had the training's state."""
    steps = {"name": "Steps", "logPattern": "step", "expectedRecurringFrequencyInSeconds": 30}
    policy = {"runPolicy": {"mode": "enforce", "logMonitoringConfiguration": [steps]}}
    watcher, _ = made(tmp_path, policy)
    watcher.tick(0.0, view(0, generation=3))
    watcher.heard(1.0, replace(LINE, what="Steps"))
    for now in range(2, 100):
        assert watcher.tick(float(now), View(0, 0, 0, "starting", view(0).members)) == []
    watcher.heard(100.0, replace(LINE, what="Steps", worker="b0.0.1"))
    assert quiet(watcher, 101, generation=4) != [], "the line comes no more"


@pytest.mark.parametrize(
    ("mode", "stated", "restarts"), [("live", {}, 1), ("restart", {}, 3), ("restart", 2, 2)]
)
def test_all_may_be_restarted_as_often_as_the_mode_has_it_where_the_policy_says_nothing(
    tmp_path: Path, mode: str, stated: Any, restarts: int
) -> None:
    limit = {"maxFullJobRestarts": stated} if stated else {}
    policy = {
        "runPolicy": {"mode": "enforce", "restartPolicy": limit},
        "metrics": {"hang": {"do": ["restartAll"]}},
    }
    folder = RunFolder.create(tmp_path / "run", spec(policy))
    (watcher,) = watchers_of(replace(spec(policy), mode=mode), folder, 0.0)
    found = [
        each for now in range(40000) for each in watcher.tick(float(now), view(5, generation=1 + now // 1000))
    ]
    assert [type(each) for each in found] == [RestartAll] * restarts + [Fail]


@pytest.mark.parametrize("stated", [{}, {"maxFullJobRestarts": 2}])
@pytest.mark.parametrize(("mode", "fails"), [("live", True), ("restart", False)])
def test_in_restart_mode_only_restarts_of_the_period_count(
    tmp_path: Path, mode: str, stated: dict[str, int], *, fails: bool
) -> None:
    """A long run has one every few hours."""
    rule = {"name": "Bad", "logPattern": "Xid", "faultOnMatch": True, "do": ["restartAll", "fail"]}
    run = {"mode": "enforce", "restartPolicy": stated, "logMonitoringConfiguration": [rule]}
    folder = RunFolder.create(tmp_path / "run", spec({"runPolicy": run}))
    (watcher,) = watchers_of(replace(spec({"runPolicy": run}), mode=mode), folder, 0.0)
    found: list[Any] = []
    for turn in range(5):
        watcher.tick(7200.0 * turn, view(turn, generation=turn + 1))
        line = replace(LINE, what="Bad", worker=f"b0.0.{turn}")
        found += watcher.heard(7200.0 * turn, line)
    assert (Fail in {type(each) for each in found}) == fails


def test_what_a_rank_printed_before_all_were_started_again_has_no_second_restart(tmp_path: Path) -> None:
    """Restart mode deals with its crash by itself; it is the rule's first rung all the same."""
    do = ["restartProcess", "excludeNode"]
    rule = {"name": "Bad", "logPattern": "Xid", "faultOnMatch": True, "do": do}
    run = {"mode": "enforce", "logMonitoringConfiguration": [rule]}
    folder = RunFolder.create(tmp_path / "run", spec({"runPolicy": run}))
    (watcher,) = watchers_of(replace(spec({"runPolicy": run}), mode="restart"), folder, 0.0)
    line = replace(LINE, worker="b0.0", what="Bad", past=True, generation=1)
    watcher.tick(0.0, view(1))
    assert watcher.heard(0.1, line) == []
    line = replace(line, generation=2)
    assert [type(each) for each in watcher.heard(60.0, line)] == [ReplaceNode]
    assert [each.detail["rung"] for each in folder.events()] == do


def test_a_log_rule_that_is_over_stays_so_under_another_coordinator(tmp_path: Path) -> None:
    rule = {"name": "Steps", "logPattern": "step", "expectedRecurringFrequencyInSeconds": 5}
    policy = {"logMonitoringConfiguration": [{**rule, "stopPattern": "done"}, {**rule, "name": "Other"}]}
    watcher, folder = made(tmp_path, policy)
    watcher.heard(0.0, Report("log", "w0", "n0", metrics={"stopped": 1.0, "matched": 1.0}, what="Steps"))
    assert [each.detail for each in folder.events()] == [{"rule": "Steps", "why": "stopped"}]
    successor, _ = made(tmp_path, policy)
    for name in ("Steps", "Other"):
        successor.heard(0.0, Report("log", "w0", "n0", metrics={"matched": 1.0}, what=name))
    for tick in range(200):
        successor.tick(tick * 0.1, view(tick))
    findings = [each.detail["name"] for each in folder.events() if each.event == "finding"]
    assert findings == ["Other"]

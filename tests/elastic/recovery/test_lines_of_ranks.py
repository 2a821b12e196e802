"""Restart mode: what ranks print and when, against all of them being started again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_acting import SPEC

from hpctools.elastic.actions import ReplaceNode, RestartAll, RestartWorker
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.recovery import watchers_of
from hpctools.elastic.recovery.watching import RecoveryWatcher
from hpctools.elastic.watchers import MemberView, Report, View

FAULT = {"name": "Bad", "logPattern": "Xid", "faultOnMatch": True}
RANKS = tuple(MemberView(f"b{n}.0", f"n{n}", None, 0.0, trains=True) for n in range(8))


def watcher_of(tmp_path: Path, **rule: Any) -> tuple[RecoveryWatcher, RunFolder]:
    run = {"mode": "enforce", "logMonitoringConfiguration": [rule]}
    spec = replace(SPEC, mode="restart", recovery={"runPolicy": run})
    folder = RunFolder.create(tmp_path / "run", spec)
    (watcher,) = watchers_of(spec, folder, 0.0)
    watcher.tick(0.0, seen(1))
    return watcher, folder


def seen(generation: int, phase: str = "running") -> View:
    return View(0, 8, generation, phase, RANKS, begins=True)


def printed(place: int, generation: int, *, past: bool = False, what: str = "Bad") -> Report:
    """A line of a rank, each on a node of its own."""
    report = Report("log", f"b{place}.0", f"n{place}", metrics={"matched": 1.0}, lines=("Xid",), what=what)
    return replace(report, past=past, generation=generation)


def rungs(folder: RunFolder) -> list[str]:
    return [each.detail["rung"] for each in folder.events() if each.event == "finding"]


@pytest.mark.parametrize("nodes", [1, 8])
def test_a_fault_that_all_ranks_print_is_one_though_it_is_told_when_they_run_again(
    tmp_path: Path, nodes: int
) -> None:
    """Its rule would climb all its rungs, and the run end at its first crash."""
    watcher, folder = watcher_of(tmp_path, **FAULT)
    watcher.tick(1.0, seen(2))
    for rank in range(8):
        late = replace(printed(rank, 1, past=True), node=f"n{rank % nodes}")
        assert watcher.heard(1.2, late) == []
    assert rungs(folder) == ["restartProcess"]


def test_so_it_is_where_the_first_line_came_in_time(tmp_path: Path) -> None:
    watcher, folder = watcher_of(tmp_path, **FAULT)
    (action,) = watcher.heard(1.0, printed(0, 1))
    assert isinstance(action, RestartWorker)
    watcher.tick(1.1, seen(2))
    for rank in range(1, 8):
        assert watcher.heard(1.2, printed(rank, 1, past=True)) == []
    assert rungs(folder) == ["restartProcess"]


def test_the_next_generation_that_prints_it_is_the_next_rung(tmp_path: Path) -> None:
    """Also when that, too, is told late; and a node is replaced although all were started again."""
    watcher, folder = watcher_of(tmp_path, **FAULT, do=["restartProcess", "replaceNode", "restartAll"])
    for rank in range(2):
        assert watcher.heard(1.0, printed(rank, 1, past=True)) == []
    (action,) = watcher.heard(60.0, printed(0, 2, past=True))
    assert isinstance(action, ReplaceNode)
    assert watcher.heard(60.1, printed(0, 2, past=True)) == []
    watcher.tick(61.0, seen(3))
    (action,) = watcher.heard(120.0, printed(0, 3))
    assert isinstance(action, RestartAll)
    assert len(rungs(folder)) == 3


def test_another_rule_s_line_of_the_same_generation_is_its_own(tmp_path: Path) -> None:
    other = {**FAULT, "name": "Other", "do": ["replaceNode"]}
    run = {"mode": "enforce", "logMonitoringConfiguration": [FAULT, other]}
    spec = replace(SPEC, mode="restart", recovery={"runPolicy": run})
    (watcher,) = watchers_of(spec, RunFolder.create(tmp_path / "run", spec), 0.0)
    assert watcher.heard(1.0, printed(0, 1, past=True)) == []
    (action,) = watcher.heard(1.1, printed(1, 1, past=True, what="Other"))
    assert isinstance(action, ReplaceNode)


STEPS = {"name": "Steps", "logPattern": "step", "expectedRecurringFrequencyInSeconds": 60}
BEGAN = {"name": "Began", "logPattern": "began", "expectedStartCutOffInSeconds": 120}


def pass_time(watcher: RecoveryWatcher, begin: int, end: int, view: View) -> list[Any]:
    return [each for now in range(begin, end) for each in watcher.tick(float(now), view)]


def test_a_line_that_comes_again_is_not_missed_while_a_resize_saves_ends_and_starts_the_ranks(
    tmp_path: Path,
) -> None:
    """What they printed last is told when the next ones have begun."""
    watcher, _ = watcher_of(tmp_path, **STEPS)
    watcher.heard(1.0, printed(0, 1, what="Steps"))
    assert pass_time(watcher, 2, 32, seen(1)) == []
    assert pass_time(watcher, 32, 92, seen(1, "resizing")) == []
    assert watcher.tick(92.0, seen(2, "starting")) == []
    watcher.heard(92.1, printed(0, 1, past=True, what="Steps"))
    assert pass_time(watcher, 93, 193, seen(2)) == []
    watcher.heard(193.0, printed(0, 2, what="Steps"))
    assert [type(each) for each in pass_time(watcher, 194, 294, seen(2))] == [RestartAll]


def test_ranks_that_hang_at_a_start_that_no_rule_asked_for_are_found(tmp_path: Path) -> None:
    """The line that they print at a start came in the generation before."""
    watcher, _ = watcher_of(tmp_path, **BEGAN)
    watcher.heard(1.0, printed(0, 1, what="Began"))
    assert pass_time(watcher, 2, 200, seen(1)) == []
    watcher.tick(200.0, seen(2))
    watcher.heard(200.1, printed(1, 1, past=True, what="Began"))
    assert pass_time(watcher, 201, 319, seen(2)) == []
    assert [type(each) for each in pass_time(watcher, 319, 330, seen(2))] == [RestartAll]


def test_a_coordinator_that_learns_which_generation_runs_takes_that_for_no_start(tmp_path: Path) -> None:
    """An agent that was cut off tells an older one first; the line came under the coordinator before."""
    _, folder = watcher_of(tmp_path, **BEGAN)
    folder.append_event("joined", worker="b0.0", node="n0", generation=2)
    run = {"mode": "enforce", "logMonitoringConfiguration": [BEGAN]}
    spec = replace(SPEC, mode="restart", recovery={"runPolicy": run})
    (successor,) = watchers_of(spec, folder, 0.0)
    for generation in (1, 2):
        assert successor.tick(0.1 * generation, seen(generation, "waiting")) == []
    assert pass_time(successor, 1, 200, seen(2)) == []


def test_a_start_that_takes_long_after_a_resize_is_no_hang(tmp_path: Path) -> None:
    run = {"runPolicy": {"mode": "enforce"}, "metrics": {"hang": {"seconds": 100}}}
    spec = replace(SPEC, mode="restart", recovery=run)
    (watcher,) = watchers_of(spec, RunFolder.create(tmp_path / "run", spec), 0.0)
    assert pass_time(watcher, 0, 60, seen(1)) == []
    assert pass_time(watcher, 60, 120, seen(1, "resizing")) == []
    assert pass_time(watcher, 120, 210, seen(2)) == []
    assert [type(each) for each in pass_time(watcher, 210, 230, seen(2))] == [RestartAll]

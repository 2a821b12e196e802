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

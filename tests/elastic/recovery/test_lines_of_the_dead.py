"""A worker that prints a line and ends: its end is heard first, the line while nothing else is looked at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_acting import SPEC

from hpctools.elastic.actions import Fail, ReplaceNode, RestartAll, RestartWorker, RollBack
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.recovery import watchers_of
from hpctools.elastic.recovery.watching import RecoveryWatcher
from hpctools.elastic.watchers import MemberView, Report, View

MEMBERS = tuple(MemberView(f"b{n}.0.0", f"n{n}", 5, 0.0, trains=True) for n in range(3))


def watcher_of(tmp_path: Path, *do: str, crash: Any = True) -> RecoveryWatcher:
    rule = {"name": "Oom", "logPattern": ".*OutOfMemoryError", "faultOnMatch": True, "do": list(do)}
    run = {"mode": "enforce", "logMonitoringConfiguration": [rule]}
    spec = replace(SPEC, recovery={"runPolicy": run, "metrics": {"crash": crash}})
    (watcher,) = watchers_of(spec, RunFolder.create(tmp_path / "run", spec), 0.0)
    watcher.tick(0.0, View(5, 3, 1, "running", MEMBERS))
    return watcher


def ended(node: int) -> Report:
    return Report("exit", f"b{node}.0.0", f"n{node}", code=1)


def printed(node: int) -> Report:
    line = ("OutOfMemoryError",)
    return Report("log", f"b{node}.0.0", f"n{node}", metrics={"matched": 1.0}, lines=line, what="Oom")


def done(found: Any) -> list[type]:
    return [type(each) for each in found]


def test_its_node_goes_as_the_line_s_rule_has_it_once_and_is_not_excluded_for_one_fault(
    tmp_path: Path,
) -> None:
    """What the matcher tells next is of the same fault, and what others printed who ended with it."""
    watcher = watcher_of(tmp_path, "replaceNode", "excludeNode")
    for node in (0, 1):
        assert done(watcher.heard(1.0, ended(node))) == [RestartWorker]
    (action,) = watcher.heard(1.2, printed(0))
    assert (type(action), action.node, action.exclude) == (ReplaceNode, "n0", False)
    for node in (0, 1):
        assert watcher.heard(1.4, printed(node)) == []


@pytest.mark.parametrize(("do", "printer"), [("restartProcess", 0), ("restartAll", 2), ("replaceNode", 2)])
def test_what_else_is_printed_meanwhile_is_of_the_time_before(tmp_path: Path, do: str, printer: int) -> None:
    """The worker was started again; and others print what follows from its end."""
    watcher = watcher_of(tmp_path, do)
    assert done(watcher.heard(1.0, ended(0))) == [RestartWorker]
    assert watcher.heard(1.2, printed(printer)) == []


@pytest.mark.parametrize(
    ("do", "action"), [("fail", Fail), ("restartAll", RestartAll), ("rollBack", RollBack)]
)
def test_so_is_whatever_else_the_line_s_rule_wants(tmp_path: Path, do: str, action: type) -> None:
    watcher = watcher_of(tmp_path, do)
    assert done(watcher.heard(1.0, ended(0))) == [RestartWorker]
    assert done(watcher.heard(1.2, printed(0))) == [action]


def test_what_was_done_to_all_is_not_done_again_for_the_line_of_who_ended_with_them(tmp_path: Path) -> None:
    watcher = watcher_of(tmp_path, "rollBack", crash={"do": ["rollBack"]})
    assert done(watcher.heard(1.0, ended(0))) == [RollBack, RestartWorker]
    assert done(watcher.heard(1.1, ended(1))) == [RestartWorker]
    for node in (0, 1):
        assert watcher.heard(1.2, printed(node)) == []


def test_who_ended_long_before_is_forgotten(tmp_path: Path) -> None:
    watcher = watcher_of(tmp_path, "replaceNode")
    assert done(watcher.heard(1.0, ended(0))) == [RestartWorker]
    watcher.tick(3.0, View(5, 3, 2, "running", MEMBERS))
    assert done(watcher.heard(4.0, ended(1))) == [RestartWorker]
    assert watcher.heard(4.2, printed(0)) == []

"""Whole runs whose workers start processes: loading processes that are killed, and trainings of their own."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from ledger_run import PATIENCE

from tests.elastic.test_run import MakeRun, assert_same_result, hurried_run, hurry, lone, warnings_of

__all__ = ["hurried_run", "hurry", "lone"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("forked_workers")]


CHILD = """
from lone_training import Noisy, train
print(len(train(Noisy(9), epochs=1)[1]))
"""


def test_what_a_worker_starts_and_submits_trains_by_itself(
    hurried_run: MakeRun,
    lone: list[dict[str, Any]],
    tmp_path: Path,
    hurry: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was taken for the worker, whose connection it cut, and which came again, and so on."""
    child = tmp_path / "child.py"
    child.write_text(CHILD)
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    hurry.touch()
    with hurried_run((1, 1), "--child", str(child)) as run:
        assert run.end(PATIENCE) == 0
    assert_same_result(run, lone)
    children = [(line["child"], line["code"], line["errors"]) for line in run.ledger() if "child" in line]
    assert children == [(["2"], 0, "")] * 2
    assert not any(event.detail["recovered"] for event in run.events("resize"))
    assert warnings_of(run) == []


def test_a_killed_loading_process_of_the_baseline(
    hurried_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """The run failed, with all the state there. Who forks them is killed, too: a worker is started again."""
    with hurried_run((2, 2), "--num-workers", "2", "--hurry", str(hurry)) as run:
        run.wait_for_world(2)
        for name in ("b0.", "b1."):
            os.kill(descendants_of(run.pid_of(name))[-1], signal.SIGKILL)
            run.wait_for_steps(5)
        assert [each for each in run.events("resize") if each.detail["recovered"]] == []
        os.kill(descendants_of(run.pid_of("b1."))[0], signal.SIGKILL)
        run.wait(lambda: [each for each in run.events("resize") if each.detail["to"] == 2])
        hurry.touch()
        assert run.end(PATIENCE) == 0
    assert_same_result(run, lone)
    assert run.log.read_text().count("was ended by SIGKILL; another one takes its place") == 2
    assert "worker b1.0.0 on n2 was ended by signal 9" in warnings_of(run)


def descendants_of(pid: int) -> list[int]:
    """The processes that run below one, parents first."""
    children = children_of(pid)
    return children + [each for child in children for each in descendants_of(child)]


def children_of(pid: int) -> list[int]:
    """By proc(5)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            found += [int(path.parent.name)] if int(parent) == pid and state not in "ZX" else []
    return found

"""Whole elastic runs of a sharded model: grow, shrink, both at once, and what is lost comes back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sharded_run import ShardedRun, assert_same_result, command, lone_ledger

pytestmark = pytest.mark.timeout(240)
MakeRun = Callable[..., ShardedRun]


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The ledger of the same training as one ordinary process."""
    return lone_ledger(tmp_path_factory.mktemp("lone"))


@pytest.fixture
def hurry(tmp_path: Path) -> Path:
    """Once this file exists the training takes no time any more: the scenario is through."""
    return tmp_path / "hurry"


@pytest.fixture
def make_run(tmp_path: Path, hurry: Path) -> MakeRun:
    def make(nodes: tuple[int, int], *options: str) -> ShardedRun:
        slowly = ("--delay", "0.004", "--hold", "3", "--hurry", str(hurry), "--await-world", str(nodes[1]))
        return ShardedRun(tmp_path, command(tmp_path / "out", *slowly, *options), nodes)

    return make


def test_grow_and_shrink(make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path) -> None:
    """2 -> 4 -> 3 -> 2: nobody ever held the whole model, and the result is that of one process."""
    with make_run((2, 4)) as run:
        run.wait_for_world(2)
        run.capacity = 2
        run.wait_for_world(4)
        for expected in (3, 2):
            run.preempt(1)
            run.wait_for_world(expected)
        hurry.touch()
        assert run.end() == 0
    assert_same_result(run, lone)
    resizes = [(each.detail["to"], each.detail["recovered"]) for each in run.events("resize")]
    assert resizes[-2:] == [(3, False), (2, False)]
    assert not any(recovered for _, recovered in resizes)
    moves = [event.detail["moved"] for event in run.events("resize")]
    assert {(each["source"], each["medium"]) for each in moves} == {("workers", "memory")}
    assert not run.events("resumed"), "nothing was lost, so no checkpoint was read"


def test_killed_and_frozen_workers(make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path) -> None:
    """Their shards are gone: the run goes back to the newest checkpoint, and ends as it should."""
    with make_run((2, 3), "--save-every", "2", "--no-room") as run:
        run.capacity = 1
        run.wait_for_world(3)
        run.wait(lambda: run.events("saved"))
        os.kill(run.pid_of("r1000"), signal.SIGKILL)
        run.wait(lambda: len(run.events("resumed")) == 1)
        run.wait_for_steps(1)
        os.kill(run.pid_of("b1"), signal.SIGSTOP)
        run.wait(lambda: len(run.events("resumed")) == 2)
        run.wait_for_steps(1)
        hurry.touch()
        assert run.end() == 0
    assert_same_result(run, lone)
    media = [event.detail["moved"]["medium"] for event in run.events("resize")]
    assert media[0] == "local disk", "the test training has no room for old and new shards"
    saved = {event.detail["step"] for event in run.events("saved")}
    assert {event.detail["step"] for event in run.events("resumed")} <= saved


def test_copies_make_good_for_a_killed_worker(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """Its shards are at its neighbour, a few steps old: no checkpoint is read, and the result is the same."""
    with make_run((1, 3), "--copy-every", "3") as run:
        run.capacity = 2
        run.wait_for_world(3)
        run.wait_for_steps(4)
        os.kill(run.pid_of("r1001"), signal.SIGKILL)
        run.wait(lambda: [each for each in run.events("resize") if each.detail["recovered"]])
        run.wait_for_steps(1)
        hurry.touch()
        assert run.end() == 0
    assert_same_result(run, lone)
    assert not run.events("resumed")
    (recovered,) = [each.detail for each in run.events("resize") if each.detail["recovered"]]
    assert recovered["moved"]["source"] == "workers"

"""Whole elastic runs that lose every worker and go on from what was saved, on any number of workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from ledger_run import LedgerRun, training

SAMPLES, EPOCHS, BATCH = 1230, 2, 48
STEPS = EPOCHS * -(-SAMPLES // BATCH)
POISON = 34
RULES = {"runPolicy": {"mode": "enforce"}, "metrics": {"nonFinite": True}}
OPTIONS = ("--samples", str(SAMPLES), "--epochs", str(EPOCHS))
pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("forked_workers")]


def ledger_of(out: Path, *options: str) -> list[dict[str, Any]]:
    """The ledger of the same training as one ordinary process, never disturbed."""
    subprocess.run(training(out, *OPTIONS, *options), check=True, stdout=subprocess.DEVNULL, timeout=120)
    return [json.loads(line) for line in (out / "lone.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of all steps."""
    return ledger_of(tmp_path_factory.mktemp("lone"))


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of one that never had the batch of step POISON."""
    return ledger_of(tmp_path_factory.mktemp("without"), "--without", str(POISON))


def make_run(base: Path, nodes: tuple[int, int], *options: str, **more: Any) -> LedgerRun:
    base.mkdir(exist_ok=True)
    delay = ("--delay", "0.004", "--hurry", str(base / "hurry"), "--save-every", "4")
    return LedgerRun(base, training(base / "out", *OPTIONS, *delay, *options), nodes, **more)


KEYS = ("step", "loss", "committed")


def assert_same_result(run: LedgerRun, lone: list[dict[str, Any]], first: int = 1) -> None:
    """Every sample exactly once per epoch, losses and weights equal to the bit, from step `first` on."""
    expected = [line for line in lone if "committed" in line and line["step"] >= first]
    assert told(run.committed()) == told(expected)
    if first == 1:
        for epoch in range(EPOCHS):
            seen = Counter(i for line in expected if line["epoch"] == epoch for i in line["committed"])
            assert seen == Counter(range(SAMPLES))
    assert_same_finals(run, lone)


def assert_same_but_for_one(run: LedgerRun, without: list[dict[str, Any]]) -> None:
    """To the bit the result of a training which never had the batch of step POISON."""
    last = {line["step"]: line for line in steps_of(run) if line["step"] != POISON}
    assert told([last[step] for step in sorted(last)]) == told([s for s in without if "committed" in s])
    assert_same_finals(run, without)


def steps_of(run: LedgerRun) -> list[dict[str, Any]]:
    """All lines about completed steps, in the order of time."""
    return sorted((line for line in run.ledger() if "committed" in line), key=lambda line: line["at"])


def told(lines: list[dict[str, Any]]) -> list[list[Any]]:
    return [[line[key] for key in KEYS] for line in lines]


def assert_same_finals(run: LedgerRun, lone: list[dict[str, Any]]) -> None:
    """All workers that were there at the end have the same weights."""
    (final,) = [line for line in lone if "final" in line]
    finals = [line for line in run.ledger() if "final" in line]
    assert finals
    assert all((line["final"], line["lr"]) == (final["final"], final["lr"]) for line in finals)


def test_every_worker_is_killed_and_a_nan_is_rolled_back_to_a_checkpoint(
    tmp_path: Path, without: list[dict[str, Any]]
) -> None:
    """Two workers, both dead at once: the run begins again with the newest checkpoint, and grows again. Later
    the loss of a step is nan: all go back to a checkpoint, and pass over its batch.
    """
    with make_run(tmp_path / "run", (1, 2), "--poison", str(POISON), recovery=RULES) as run:
        run.capacity = 1
        run.wait_for_world(2)
        run.wait(lambda: run.events("saved"))
        pids = [run.pid_of(prefix) for prefix in ("b0", "r1000")]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        run.wait(lambda: run.events("resumed"))
        run.wait(lambda: [line for line in steps_of(run) if line["world"] == 2 and line["pid"] not in pids])
        wait_until_rolled_back(run)
        (tmp_path / "run" / "hurry").touch()
        assert run.end() == 0, run.story()
    assert [each.detail["action"] for each in run.events("action")] == ["RollBack"]
    saved, resumed = ([each.detail for each in run.events(kind)] for kind in ("saved", "resumed"))
    assert {each["step"] for each in resumed} <= {each["step"] for each in saved}
    assert all(each["bytes"] > 0 and 0 < each["held_s"] <= each["seconds"] for each in saved)
    assert_same_but_for_one(run, without)
    kept = sorted(path.name for path in (run.folder.path / "checkpoints").glob("step-*"))
    assert len(kept) == 2


def wait_until_rolled_back(run: LedgerRun) -> None:
    """Until a step after the poisoned one was done in a generation without it."""

    def is_done() -> bool:
        poisoned = [line["generation"] for line in steps_of(run) if line["step"] == POISON]
        later = [line["generation"] for line in steps_of(run) if line["step"] > POISON]
        return bool(poisoned) and max(later, default=0) > max(poisoned)

    run.wait(is_done)


@pytest.mark.long
def test_nan_is_rolled_back_in_memory(tmp_path: Path, without: list[dict[str, Any]]) -> None:
    """No checkpoint is read."""
    saved = {"snapshots": 2, "snapshotIntervalInSteps": 5}
    with make_run(tmp_path / "run", (2, 2), "--poison", str(POISON), recovery=RULES, checkpoint=saved) as run:
        wait_until_rolled_back(run)
        (tmp_path / "run" / "hurry").touch()
        assert run.end() == 0, run.story()
    assert len(run.events("action")) == 1
    assert not run.events("resumed")
    assert len([line for line in run.ledger() if "final" in line]) == 2
    assert_same_but_for_one(run, without)


@pytest.mark.slow
def test_what_waits_and_what_is_cancelled_is_saved_and_goes_on_elsewhere(
    tmp_path: Path, lone: list[dict[str, Any]]
) -> None:
    """Without any interval. One of two workers is killed: the other one, parked, saves. Back to two, scancel:
    the last step is saved. Another run, which names the first one, goes on with one worker, then two.
    """
    never = {"intervalInSeconds": 0, "intervalInSteps": 0}
    with make_run(tmp_path / "old", (2, 2), checkpoint=never) as old:
        old.wait_for_world(2)
        os.kill(old.pid_of("b0"), signal.SIGKILL)
        (waiting,) = old.wait(lambda: old.events("saved"))
        old.wait(lambda: old.committed()[-1]["step"] > waiting.detail["step"] + 2)
        old.cancel_baseline()
        assert old.end() == 143, old.story()
    (_, saved) = old.events("saved")
    assert waiting.detail["worker"] == "b1.0.0"
    assert waiting.detail["why"] == "fewer workers are left than the least"
    assert saved.detail["why"] == "baseline job 1 was cancelled (scancel)"
    assert saved.detail["step"] == old.committed()[-1]["step"]
    assert not [each for each in old.events("warning") if "begins again" in each.detail["message"]]
    from_it = {**never, "resumeFrom": str(old.folder.path)}
    with make_run(tmp_path / "new", (1, 2), checkpoint=from_it) as new:
        new.capacity = 1
        new.wait_for_world(2)
        (tmp_path / "new" / "hurry").touch()
        assert new.end() == 0, new.story()
    assert new.events("resumed")[0].detail["step"] == saved.detail["step"]
    assert_same_result(new, lone, saved.detail["step"] + 1)

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
OPTIONS = ("--samples", str(SAMPLES), "--epochs", str(EPOCHS))


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The ledger of the same training as one ordinary process, never disturbed."""
    out = tmp_path_factory.mktemp("lone")
    subprocess.run(training(out, *OPTIONS), check=True, stdout=subprocess.DEVNULL, timeout=60)
    return [json.loads(line) for line in (out / "lone.jsonl").read_text().splitlines()]


def make_run(base: Path, nodes: tuple[int, int], *options: str, **more: Any) -> LedgerRun:
    base.mkdir(exist_ok=True)
    delay = ("--delay", "0.004", "--hurry", str(base / "hurry"), "--save-every", "4")
    return LedgerRun(base, training(base / "out", *OPTIONS, *delay, *options), nodes, **more)


def assert_same_result(run: LedgerRun, lone: list[dict[str, Any]], first: int = 1) -> None:
    """Every sample exactly once per epoch, losses and weights equal to the bit, from step `first` on."""
    expected = [line for line in lone if "committed" in line and line["step"] >= first]
    keys = ("step", "loss", "committed")
    assert [[line[key] for key in keys] for line in run.committed()] == [
        [line[key] for key in keys] for line in expected
    ]
    if first == 1:
        for epoch in range(EPOCHS):
            seen = Counter(i for line in expected if line["epoch"] == epoch for i in line["committed"])
            assert seen == Counter(range(SAMPLES))
    (final,) = [line for line in lone if "final" in line]
    finals = [line for line in run.ledger() if "final" in line]
    assert finals
    assert all((line["final"], line["lr"]) == (final["final"], final["lr"]) for line in finals)


def test_every_worker_is_killed_and_the_run_goes_on(tmp_path: Path, lone: list[dict[str, Any]]) -> None:
    """Three workers, all dead at once; the run begins again with the newest checkpoint, and grows again."""
    with make_run(tmp_path / "run", (2, 3)) as run:
        run.capacity = 1
        run.wait_for_world(3)
        run.wait(lambda: run.events("saved"))
        pids = [run.pid_of(prefix) for prefix in ("b0", "b1", "r1000")]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        (resumed,) = run.wait(lambda: run.events("resumed"))
        run.wait_for_world(3)
        (tmp_path / "run" / "hurry").touch()
        assert run.end() == 0, run.story()
    saved = [event.detail for event in run.events("saved")]
    assert resumed.detail["step"] in [each["step"] for each in saved]
    assert all(each["bytes"] > 0 and 0 < each["held_s"] <= each["seconds"] for each in saved)
    assert_same_result(run, lone)
    kept = sorted(path.name for path in (run.folder.path / "checkpoints").iterdir())
    assert len(kept) == 2
    assert all(name.startswith("step-") for name in kept)


def test_what_waits_and_what_is_cancelled_is_saved_and_goes_on_elsewhere(
    tmp_path: Path, lone: list[dict[str, Any]]
) -> None:
    """Without any interval. One of two workers is killed: the other one, parked, saves. Back to two, scancel:
    the last step is saved. Another run, which names the first one, goes on with one worker, then three.
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
    with make_run(tmp_path / "new", (1, 3), checkpoint=from_it) as new:
        new.wait_for_world(1)
        new.capacity = 2
        new.wait_for_world(3)
        (tmp_path / "new" / "hurry").touch()
        assert new.end() == 0, new.story()
    assert new.events("resumed")[0].detail["step"] == saved.detail["step"]
    assert_same_result(new, lone, saved.detail["step"] + 1)


@pytest.mark.parametrize("snapshots", [2, 0])
def test_nan_is_rolled_back_and_its_batch_left_out(tmp_path: Path, snapshots: int) -> None:
    """Step 15's loss is nan on three workers: all go back, in memory or to a checkpoint, and pass it over.

    The result is, to the bit, that of a training which never had that batch.
    """
    out = tmp_path / "without"
    out.mkdir()
    without = training(out, *OPTIONS, "--without", "15")
    subprocess.run(without, check=True, stdout=subprocess.DEVNULL, timeout=60)
    expected = [json.loads(line) for line in (out / "lone.jsonl").read_text().splitlines()]
    rules = {"runPolicy": {"mode": "enforce"}, "metrics": {"nonFinite": True}}
    saved = {"snapshots": snapshots, "snapshotIntervalInSteps": 5}
    with make_run(tmp_path / "run", (3, 3), "--poison", "15", recovery=rules, checkpoint=saved) as run:
        run.wait(lambda: run.events("action"))
        run.wait(lambda: [line for line in run.ledger() if line.get("step") == 18 and "committed" in line])
        (tmp_path / "run" / "hurry").touch()
        assert run.end() == 0, run.story()
    assert len(run.events("action")) == 1
    assert bool(run.events("resumed")) == (not snapshots)
    last = {line["step"]: line for line in run.ledger() if "committed" in line}
    steps = [line for line in expected if "committed" in line]
    assert [(last[line["step"]]["loss"], last[line["step"]]["committed"]) for line in steps] == [
        (line["loss"], line["committed"]) for line in steps
    ]
    assert 15 not in [line["step"] for line in steps]
    finals = [line for line in run.ledger() if "final" in line]
    assert len(finals) == 3
    assert all((each["final"], each["lr"]) == (expected[-1]["final"], expected[-1]["lr"]) for each in finals)

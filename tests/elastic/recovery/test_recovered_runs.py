"""Whole runs that fall ill, with real agents and workers: the policy does what it says, and nothing more."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpctools.elastic.folder import Event
from hpctools.testing.local_run import LocalRun

PROGRAM = Path(__file__).parent / "programs" / "ailing.py"
STEPS = 40
RESTARTS = {"restartPolicy": {"numRestartBeforeFullJobRestart": 9}}


class AilingRun(LocalRun):
    """Two nodes, a policy, an illness."""

    def __init__(self, base: Path, recovery: dict[str, Any], *options: str, **more: Any) -> None:
        self.out = base / "out"
        self.out.mkdir()
        command = [sys.executable, str(PROGRAM), "--out", str(self.out), "--steps", str(STEPS), *options]
        super().__init__(base, command, (2, 2), recovery=recovery, **more)

    def finish(self, limit: float = 80.0) -> int:
        """The exit code of the baseline; when it does not end, all that is known."""
        code = super().end(limit)
        assert self.status is not None
        return code

    def events(self, *kinds: str) -> list[Event]:
        """The run's events of some kinds."""
        return [event for event in self.folder.events() if event.event in kinds]

    def ledger(self) -> list[dict[str, Any]]:
        """What the workers have written, in the order of steps."""
        lines = [
            json.loads(line) for path in self.out.glob("*.jsonl") for line in path.read_text().splitlines()
        ]
        return sorted(lines, key=lambda line: (line.get("generation", 99), line.get("step", 999)))

    @property
    def status(self) -> Any:
        """How the run stands."""
        return self.folder.status()

    def story(self) -> str:
        """All that is known, for a failed assertion."""
        events = "\n".join(f"{event.time} {event.event} {event.detail}" for event in self.folder.events())
        return f"{events}\n--- agents\n{self.log.read_text(errors='replace')[-3000:]}"


MakeRun = Callable[..., AilingRun]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    return lambda recovery, *options, **more: AilingRun(tmp_path, recovery, *options, **more)


def enforced(metrics: dict[str, Any], **run_policy: Any) -> dict[str, Any]:
    return {"runPolicy": {"mode": "enforce", **run_policy}, "metrics": metrics}


def found(run: AilingRun) -> list[tuple[str, str, str]]:
    return [
        (each.detail["cause"], each.detail["worker"], each.detail["rung"]) for each in run.events("finding")
    ]


def actions(run: AilingRun) -> list[str]:
    return [each.detail["action"] for each in run.events("action")]


def test_nan_is_rolled_back_and_its_batch_is_skipped(make_run: MakeRun) -> None:
    """Every other sample is trained on once in the end, in processes that were never restarted."""
    policy = enforced({"nonFinite": True})
    checkpoint = {"snapshots": 3, "snapshotIntervalInSteps": 2}
    with make_run(policy, "--nan-sample", "77", checkpoint=checkpoint) as run:
        assert run.finish() == 0, run.story()
    assert [rung for _, _, rung in found(run)] == ["rollBack"]
    assert actions(run) == ["RollBack"]
    lines = run.ledger()
    assert len({line["pid"] for line in lines if "pid" in line}) == 2
    again = min(line["step"] for line in lines if line.get("generation") == 2)
    last = {
        line["step"]: line
        for line in lines
        if "step" in line and (line["generation"] == 2 or line["step"] < again)
    }
    assert None not in [line["loss"] for line in last.values()]
    trained = sorted(index for line in last.values() for index in line["samples"])
    assert len(trained) == len(set(trained)) == (STEPS - 1) * 4
    assert 77 not in trained
    assert [line["finite"] for line in lines if "final" in line] == [True, True]


def test_in_mode_log_it_is_only_written_down(make_run: MakeRun) -> None:
    """A loss that is not a number, and a slow rank, which is named."""
    policy = {"metrics": {"nonFinite": True, "slowRank": {"ratio": 1.8, "metricEvaluationDataPoints": 3}}}
    with make_run(policy, "--nan-sample", "77", "--slow", "0.1") as run:
        assert run.finish() == 0, run.story()
    causes = {(cause, worker if cause == "slowRank" else "") for cause, worker, _ in found(run)}
    assert causes == {("nonFinite", ""), ("slowRank", "b1.0.0")}, run.story()
    assert {each.detail["mode"] for each in run.events("finding")} == {"log"}
    assert actions(run) == []
    assert [line["finite"] for line in run.ledger() if "final" in line] == [False, False]


def test_a_hang_and_a_crash_restart_who_is_to_blame_and_nobody_else(make_run: MakeRun) -> None:
    """Without the rules the first would never end, and the second would end the run."""
    policy = enforced({"stalledStep": {"ratio": 5, "seconds": 2.5}, "crash": True}, **RESTARTS)
    with make_run(policy, "--hang-at", "12", "--crash-at", "20") as run:
        assert run.finish() == 0, run.story()
    assert found(run) == [
        ("stalledStep", "b1.0.0", "restartProcess"),
        ("crash", "b1.0.1", "restartProcess"),
    ], run.story()
    assert actions(run) == ["RestartWorker", "RestartWorker"]
    (crash,) = run.events("crashed")
    assert crash.detail["stderr"][-1] == "ValueError: cosmic ray"
    lines = [line for line in run.ledger() if "pid" in line]
    assert {line["worker"] for line in lines} == {"b0.0.0", "b1.0.0", "b1.0.1", "b1.0.2"}
    committed = [line["step"] for line in lines if line["worker"] == "b0.0.0"]
    assert committed == list(range(1, STEPS + 1)), "no step was lost or done twice"


def test_a_crash_loop_ends_with_the_causes_own_code(make_run: MakeRun) -> None:
    policy = enforced({"crash": {"do": ["restartProcess", "restartProcess", "fail"]}})
    begun = time.monotonic()
    with make_run(policy, "--crash-at", "3", "--crashes", "99") as run:
        assert run.finish() == 40, run.story()
    assert time.monotonic() - begun < 80
    assert [rung for _, _, rung in found(run)] == ["restartProcess", "restartProcess", "fail"]
    assert run.status.state == "failed"
    assert "ValueError: cosmic ray" in run.status.message


def test_a_line_that_a_rule_matches_ends_the_run_with_its_code(make_run: MakeRun) -> None:
    """And a catastrophic expression beside it stops nobody."""
    rules = [
        {"name": "Oom", "logPattern": ".*OutOfMemoryError", "faultOnMatch": True, "do": ["fail"]},
        {"name": "catastrophic", "logPattern": "(?:a+)+$"},
    ]
    policy = {"runPolicy": {"mode": "enforce"}, "logMonitoringConfiguration": rules}
    say = "a" * 50 + "!\n" * 2 + "torch.cuda.OutOfMemoryError: tried to allocate"
    with make_run(policy, "--say", say, "--delay", "0.2") as run:
        assert run.finish() == 47, run.story()
    assert found(run) == [("log", "b0.0.0", "fail")]
    assert "torch.cuda.OutOfMemoryError: tried to allocate" in run.log.read_text(), (
        "it is still the job's output"
    )

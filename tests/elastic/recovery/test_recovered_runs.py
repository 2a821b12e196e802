"""Whole runs that fall ill, with real agents and workers: the policy does what it says, and nothing more."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ledger_run import LedgerRun
from metadata_service import serving, spot_at

from hpctools.elastic.notices import SPOT_PATH

PROGRAM = Path(__file__).parent / "programs" / "ailing.py"
STEPS = 64
RESTARTS = {"restartPolicy": {"numRestartBeforeFullJobRestart": 9}}
SPIKE = {"ratio": 50, "deviations": 10}
LOW = {"name": "accuracy", "metric": "accuracy", "metricThreshold": 0.5, "operator": "lt"}


class AilingRun(LedgerRun):
    """A policy, and an illness."""

    def __init__(
        self,
        base: Path,
        recovery: dict[str, Any],
        *options: str,
        nodes: tuple[int, int] = (2, 2),
        steps: int = STEPS,
        **more: Any,
    ) -> None:
        command = [sys.executable, str(PROGRAM), "--out", str(base / "out"), "--steps", str(steps), *options]
        super().__init__(base, command, nodes, recovery=recovery, **more)

    def steps(self) -> list[dict[str, Any]]:
        """What the workers wrote of completed steps, in the order of generations and steps."""
        lines = [line for line in self.ledger() if "step" in line]
        return sorted(lines, key=lambda line: (line["generation"], line["step"]))

    def found(self) -> list[tuple[str, str, str]]:
        """What was found: cause, who was to blame, and the rung of the ladder."""
        findings = [each.detail for each in self.events("finding")]
        return [(each["cause"], each["worker"], each["rung"]) for each in findings]

    def actions(self) -> list[str]:
        """What was done."""
        return [each.detail["action"] for each in self.events("action")]


pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("forked_workers")]
MakeRun = Callable[..., AilingRun]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    return lambda recovery, *options, **more: AilingRun(tmp_path, recovery, *options, **more)


def enforced(metrics: dict[str, Any], **run_policy: Any) -> dict[str, Any]:
    return {"runPolicy": {"mode": "enforce", **run_policy}, "metrics": metrics}


@pytest.mark.slow
def test_what_is_wrong_with_the_numbers_is_rolled_back_and_its_batch_is_skipped(make_run: MakeRun) -> None:
    """A loss that is no number, one far above its course, a number of the loop's own beyond its threshold.

    Every other sample is trained on once in the end, in processes that were never restarted.
    """
    metrics = {"nonFinite": True, "lossSpike": SPIKE, "rules": [LOW]}
    policy = enforced(metrics, rollBackSteps=14, **RESTARTS)
    checkpoint = {"snapshots": 16, "snapshotIntervalInSteps": 2}
    ills = ("--nan-at", "16", "--spike-at", "34", "--bad-at", "50", "--delay", "0.06")
    with make_run(policy, *ills, checkpoint=checkpoint) as run:
        assert run.end() == 0, run.story()
    assert [(cause, rung) for cause, _, rung in run.found()] == [
        ("nonFinite", "rollBack"),
        ("lossSpike", "rollBack"),
        ("metric", "rollBack"),
    ], run.story()
    assert run.actions() == ["RollBack"] * 3
    skipped = [each.detail["blamed"] for each in run.events("action")]
    assert skipped == [16, 35, 50], "the weights were too large after step 34"
    assert len({line["pid"] for line in run.steps()}) == 2
    last = {line["step"]: line for line in run.steps() if line["step"] not in skipped}
    assert sorted([*last, *skipped]) == list(range(1, STEPS + 1))
    assert all(last[step]["loss"] < 1 for step in last if step >= 34), "it went back to before the spike"
    trained = [index for line in last.values() for index in line["samples"]]
    assert len(set(trained)) == len(trained) == (STEPS - 3) * 4
    assert [line["finite"] for line in run.ledger() if "final" in line] == [True, True]


def test_one_bad_batch_among_many_steps_a_second_is_itself_passed_over(make_run: MakeRun) -> None:
    """Its loss is that of one step, and steps come faster than signs of life. With the defaults the run goes
    back to before that step, where its gradients have done nothing yet.
    """
    checkpoint = {"snapshots": 400, "snapshotIntervalInSteps": 1}
    policy = enforced({"lossSpike": SPIKE}, **RESTARTS)
    with make_run(policy, "--bad-batch", "71", "--delay", "0", steps=400, checkpoint=checkpoint) as run:
        assert run.end() == 0, run.story()
    assert run.found() == [("lossSpike", "", "rollBack")], run.story()
    (action,) = run.events("action")
    assert (action.detail["action"], action.detail["blamed"], action.detail["steps"]) == ("RollBack", 71, 1)
    last = {line["step"]: line for line in run.steps() if line["step"] != 71}
    assert sorted([*last, 71]) == list(range(1, 401))
    assert all(line["loss"] < 1 for step, line in last.items() if step > 71), "nothing of its damage is left"
    again = [line["step"] for line in run.steps() if line["generation"] > 1]
    assert min(again) == 72, "not one step more was done again"


def test_a_bad_last_step_is_rolled_back_and_what_comes_before_it_is_done_again(make_run: MakeRun) -> None:
    """The loop has gone through its last batch, and gets more."""
    policy = enforced({"nonFinite": True}, rollBackSteps=8, **RESTARTS)
    checkpoint = {"snapshots": 8, "snapshotIntervalInSteps": 2}
    with make_run(policy, "--nan-at", "24", steps=24, checkpoint=checkpoint) as run:
        assert run.end() == 0, run.story()
    assert [(cause, rung) for cause, _, rung in run.found()] == [("nonFinite", "rollBack")], run.story()
    again = [line["step"] for line in run.steps() if line["generation"] > 1]
    assert sorted(set(again)) == list(range(min(again), 24)), run.story()
    assert min(again) <= 17
    assert [line["finite"] for line in run.ledger() if "final" in line] == [True, True]


def test_before_anything_is_saved_a_roll_back_goes_to_the_beginning(
    make_run: MakeRun, tmp_path: Path
) -> None:
    """With the defaults nothing is saved in the first ten minutes, and no snapshots are taken. All processes
    begin again, without the batch that was to blame, and end with the bits of one that never had it.
    """
    with make_run(enforced({"nonFinite": True}), "--nan-at", "16", steps=24) as run:
        assert run.end(160) == 0, run.story()
    assert run.found() == [("nonFinite", "", "rollBack")], run.story()
    assert run.actions() == ["RollBack", "RestartAll"], run.story()
    assert run.events("action")[1].detail["skip"] == [16]
    assert not run.events("crashed"), run.story()
    last = {line["step"]: line for line in run.steps()}
    alone = lone_steps(tmp_path / "alone", "--steps", "24", "--without", "16")
    assert {step: line["loss"] for step, line in last.items() if step != 16} == alone
    assert [line["finite"] for line in run.ledger() if "final" in line] == [True, True]


def test_a_roll_back_beyond_all_that_is_kept_is_the_next_rung_and_its_own_exit_code(
    make_run: MakeRun,
) -> None:
    """What is kept is of steps that would have to be given up: it is not thrown away for the beginning."""
    checkpoint = {"intervalInSteps": 2, "intervalInSeconds": 0}
    policy = enforced({"nonFinite": True}, rollBackSteps=12)
    with make_run(policy, "--nan-at", "16", "--delay", "0.05", steps=24, checkpoint=checkpoint) as run:
        assert run.end(160) == 43, run.story()
    assert [rung for _, _, rung in run.found()] == ["rollBack", "restartAll", "fail"], run.story()
    assert run.actions() == ["RollBack", "RestartAll", "Fail"]
    second = run.events("finding")[1].detail
    assert second["ladder"].startswith(
        "rollBack cannot be done: no state of at most 4 steps is kept, the newest"
    )
    (resumed,) = run.events("resumed")
    assert resumed.detail["step"] in (10, 12, 14)
    assert not run.events("crashed"), run.story()


def lone_steps(out: Path, *options: str) -> dict[int, float]:
    """The loss of each step of the same training as one process that nothing happens to."""
    out.mkdir()
    subprocess.run([sys.executable, str(PROGRAM), "--out", str(out), *options], check=True, timeout=60)
    lines = map(json.loads, (out / "lone.jsonl").read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines if "step" in line}


@pytest.mark.long
def test_in_mode_log_it_is_only_written_down(make_run: MakeRun) -> None:
    """The same, and a slow rank, which is named."""
    slow = {"ratio": 1.8, "metricEvaluationDataPoints": 3}
    policy = {"metrics": {"nonFinite": True, "lossSpike": SPIKE, "rules": [LOW], "slowRank": slow}}
    ills = ("--spike-at", "12", "--bad-at", "20", "--nan-at", "30", "--slow", "0.1")
    with make_run(policy, *ills, steps=36) as run:
        assert run.end() == 0, run.story()
    causes = {(cause, worker if cause == "slowRank" else "") for cause, worker, _ in run.found()}
    expected = {("nonFinite", ""), ("lossSpike", ""), ("metric", ""), ("slowRank", "b1.0.0")}
    assert causes == expected, run.story()
    assert {each.detail["mode"] for each in run.events("finding")} == {"log"}
    assert run.actions() == []
    assert {line["generation"] for line in run.steps()} == {1}
    assert [line["finite"] for line in run.ledger() if "final" in line] == [False, False]


@pytest.mark.slow
def test_a_hang_and_a_crash_restart_who_is_to_blame_and_a_crash_loop_ends_the_run(make_run: MakeRun) -> None:
    """Nobody else is restarted; without the rules the hang would never end."""
    stall, crash = {"ratio": 5, "seconds": 2.5}, {"do": ["restartProcess", "fail"]}
    policy = enforced({"stalledStep": stall, "crash": crash}, **RESTARTS)
    with make_run(policy, "--hang-at", "16", "--crash-at", "22", "--delay", "0.05") as run:
        assert run.end(160) == 40, run.story()
    assert run.found() == [
        ("stalledStep", "b1.0.0", "restartProcess"),
        ("crash", "b1.0.1", "restartProcess"),
        ("crash", "b1.0.2", "fail"),
    ], run.story()
    assert run.actions() == ["RestartWorker", "RestartWorker", "Fail"]
    last_words = [each.detail["stderr"][-1:] for each in run.events("crashed")]
    assert last_words == 2 * [["ValueError: cosmic ray"]], run.story()
    assert {line["worker"] for line in run.steps()} == {"b0.0.0", "b1.0.0", "b1.0.1"}
    committed = [line["step"] for line in run.steps() if line["worker"] == "b0.0.0"]
    assert committed == list(range(1, 22)), "no step was lost or done twice"
    status = run.status()
    assert status is not None
    assert status.state == "failed"
    assert "ValueError: cosmic ray" in status.message


@pytest.mark.long
def test_a_slow_node_is_replaced_one_taken_away_departs_and_a_line_ends_the_run(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first replica is slow; the metadata service of the second one's node announces an interruption;
    then a line of the output matches. A catastrophic expression beside that rule stops nobody.
    """
    rules = [
        {"name": "Oom", "logPattern": ".*OutOfMemoryError", "faultOnMatch": True, "do": ["fail"]},
        {"name": "catastrophic", "logPattern": "(?:a+)+$"},
    ]
    slow = {"slowRank": {"ratio": 4, "metricEvaluationDataPoints": 3}}
    policy = {**enforced(slow), "logMonitoringConfiguration": rules}
    say = "a" * 50 + "!\n" * 2 + "torch.cuda.OutOfMemoryError: tried to allocate"
    ills = ("--ill", "r1000", "--slow", "0.4", "--delay", "0.02", "--say", say)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with (
        serving() as service,
        make_run(policy, *ills, "--say-when", str(tmp_path / "say"), nodes=(1, 2), steps=5000) as run,
    ):
        run.capacity = 1
        run.wait(lambda: [line for line in run.steps() if line["worker"].startswith("r1000")])
        run.capacity = 0
        run.wait(lambda: run.events("left"))
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.endpoint)
        run.capacity = 1
        run.wait(lambda: [line for line in run.steps() if line["worker"].startswith("r1001")])
        run.capacity = 0
        service.documents[SPOT_PATH] = spot_at(120)
        run.wait(lambda: len(run.events("left")) == 2)
        steps = run.steps()[-1]["step"]
        run.wait(lambda: run.steps()[-1]["step"] > steps)
        (tmp_path / "say").touch()
        assert run.end() == 47, run.story()
    assert run.found() == [("slowRank", "r1000.0.0", "replaceNode"), ("log", "b0.0.0", "fail")], run.story()
    assert run.actions() == ["ReplaceNode", "Depart", "Fail"]
    assert [(each.detail["node"], each.detail["reason"]) for each in run.events("left")] == [
        ("n2", "replaced"),
        ("n3", "departed"),
    ]
    (notice,) = run.events("notice")
    assert (notice.detail["node"], notice.detail["what"]) == ("n3", "spot")
    assert not run.events("resize")[-1].detail["recovered"], "it left between two steps"
    committed = [line["step"] for line in run.steps() if line["worker"] == "b0.0.0"]
    assert committed == list(range(1, len(committed) + 1)), "no step was lost or done twice"
    assert "torch.cuda.OutOfMemoryError: tried to allocate" in run.log.read_text(), (
        "it is still the job's output"
    )

"""Whole runs, with real agents and workers: rungs of the ladder that send somebody away, or begin again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from metadata_service import serving
from test_recovered_runs import AilingRun, enforced

from hpctools.elastic.notices import REBALANCE_PATH
from hpctools.testing.folder_slurm import FIRST_JOB

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(360),
    pytest.mark.usefixtures("forked_workers"),
]
MakeRun = Callable[..., AilingRun]
MANY = 100_000  # steps: the test ends the run


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    return lambda recovery, *options, **more: AilingRun(tmp_path, recovery, *options, **more)


def started_without(run: AilingRun, node: str) -> str:
    """Wait for the next job, which must not get the node, and start it; the worker that it brings."""
    path = run.queue / f"{FIRST_JOB + 1}.json"
    run.wait(path.exists)
    assert f"--exclude={node}" in json.loads(path.read_text())["options"], run.story()
    run.capacity = 1
    return f"r{path.stem}.0.0"


def trains(run: AilingRun, worker: str) -> bool:
    """Whether it has completed a step."""
    return any(line["worker"] == worker for line in run.steps())


def ended_by_scancel(run: AilingRun) -> None:
    """The run is ended from outside; no step was lost or done twice until then."""
    run.cancel_baseline()
    assert run.end() == 143, run.story()
    committed = [line["step"] for line in run.steps() if line["worker"] == "b0.0.0"]
    assert committed == list(range(1, len(committed) + 1)), run.story()


def test_a_node_that_offends_again_is_left_out_and_the_run_goes_on_elsewhere(make_run: MakeRun) -> None:
    """Its worker is slow, and started again it still is."""
    slow = {"ratio": 5, "metricEvaluationDataPoints": 3, "do": ["restartProcess", "replaceNode"]}
    ills = ("--ill", "r1000", "--slow", "0.3")
    with make_run(enforced({"slowRank": slow}), *ills, nodes=(1, 2), steps=MANY) as run:
        run.capacity = 1
        run.wait(lambda: trains(run, "r1000.0.0"))
        run.capacity = 0
        another = started_without(run, "n2")
        run.wait(lambda: trains(run, another))
        ended_by_scancel(run)
    assert run.found()[:2] == [
        ("slowRank", "r1000.0.0", "restartProcess"),
        ("slowRank", "r1000.0.1", "excludeNode"),
    ], run.story()
    first, second = [each.detail for each in run.events("action")][:2]
    assert (first["action"], first["worker"]) == ("RestartWorker", "r1000.0.0")
    assert (second["action"], second["node"], second["exclude"]) == ("ReplaceNode", "n2", True)
    assert "repeat offender" in second["reason"]
    left = [(each.detail["node"], each.detail["reason"]) for each in run.events("left")]
    assert ("n2", "replaced") in left, run.story()


def test_a_rule_has_all_begin_again_with_what_is_saved(make_run: MakeRun, tmp_path: Path) -> None:
    """All processes are new ones, and the steps after the checkpoint are done again."""
    steps, say = 100, tmp_path / "say"
    bad = {"name": "Bad", "logPattern": "Xid", "faultOnMatch": True, "do": ["restartAll"]}
    policy = {**enforced({}), "logMonitoringConfiguration": [bad]}
    options, saves = ("--say", "Xid 79", "--say-when", str(say)), {"intervalInSteps": 8}
    with make_run(policy, *options, checkpoint=saves, steps=steps) as run:
        run.wait(lambda: run.events("saved"))
        say.touch()
        run.wait(lambda: run.events("action"))
        say.unlink()  # processes that are started again would say it, too
        assert run.end(160) == 0, run.story()
    assert [(cause, rung) for cause, _, rung in run.found()] == [("log", "restartAll")], run.story()
    assert run.actions() == ["RestartAll"]
    assert not run.events("crashed"), run.story()
    (resumed,) = [each.detail["step"] for each in run.events("resumed")]
    before = [line for line in run.steps() if line["generation"] == 1]
    again = [line for line in run.steps() if line["generation"] > 1]
    assert resumed >= 8
    assert {line["pid"] for line in before}.isdisjoint(line["pid"] for line in again)
    assert len({line["pid"] for line in again}) == 2, run.story()
    assert sorted({line["step"] for line in again}) == list(range(resumed + 1, steps + 1)), run.story()
    known = {line["step"]: (line["samples"], line["loss"]) for line in before}
    repeated = [line for line in again if line["step"] in known]
    assert all(known[line["step"]] == (line["samples"], line["loss"]) for line in repeated)
    status = run.status()
    assert status is not None
    assert (status.state, status.step) == ("finished", steps)


def test_an_instance_that_the_cloud_expects_to_take_back_is_left(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody said when; the next replica does not get that node."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with serving() as service, make_run({}, nodes=(1, 2), steps=MANY) as run:
        run.wait(lambda: trains(run, "b0.0.0"))
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.endpoint)
        run.capacity = 1
        run.wait(lambda: trains(run, "r1000.0.0"))
        service.concerned = set(service.tokens)
        service.documents[REBALANCE_PATH] = json.dumps({"noticeTime": "2026-11-26T04:00:00Z"})
        run.capacity = 0
        another = started_without(run, "n2")
        run.wait(lambda: trains(run, another))
        ended_by_scancel(run)
    notices = [each.detail for each in run.events("notice")]
    assert {(each["node"], each["what"], each["seconds"]) for each in notices} == {("n2", "rebalance", None)}
    (action,) = [each.detail for each in run.events("action")]
    assert (action["action"], action["node"], action["seconds"]) == ("Depart", "n2", None), run.story()
    left = run.events("left")[0].detail
    assert (left["node"], left["reason"]) == ("n2", "departed"), run.story()
    assert not any(each.detail["recovered"] for each in run.events("resize")), "it left between two steps"

"""Whole elastic runs with real agents and workers: same result and exact ledger whatever came and went."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from ledger_run import LedgerRun, training

from hpctools.elastic.earlier_terms import BEGINS_ANEW
from hpctools.elastic.protocol import SILENCE_SECONDS

SAMPLES, EPOCHS, BATCH = 2526, 2, 48  # the last batch of an epoch is smaller
STEPS = EPOCHS * -(-SAMPLES // BATCH)
DELAY = 0.004  # seconds per sample: about 0.1 s a step with two workers
OPTIONS = ("--samples", str(SAMPLES), "--epochs", str(EPOCHS))

MakeRun = Callable[..., LedgerRun]
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("forked_workers")]


@pytest.fixture(scope="session")
def lone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The ledger of the same training as one ordinary process."""
    out = tmp_path_factory.mktemp("lone")
    subprocess.run(training(out, *OPTIONS), check=True, stdout=subprocess.DEVNULL, timeout=180)
    return [json.loads(line) for line in (out / "lone.jsonl").read_text().splitlines()]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    def make(nodes: tuple[int, int], *options: str, **more: Any) -> LedgerRun:
        command = training(tmp_path / "out", *OPTIONS, "--delay", str(DELAY), *options)
        return LedgerRun(tmp_path, command, nodes, **more)

    return make


@pytest.fixture
def hurry(tmp_path: Path) -> Path:
    """Once this file exists the training takes no time any more: the scenario is through."""
    return tmp_path / "hurry"


@pytest.fixture
def hurried_run(tmp_path: Path, hurry: Path) -> MakeRun:
    """As `make_run`, of which the training hurries once the scenario is through."""

    def make(nodes: tuple[int, int], *options: str) -> LedgerRun:
        timing = ("--delay", str(DELAY), "--hurry", str(hurry))
        return LedgerRun(tmp_path, training(tmp_path / "out", *OPTIONS, *timing, *options), nodes)

    return make


def warnings_of(run: LedgerRun) -> list[str]:
    return [event.detail["message"] for event in run.events("warning")]


def assert_same_result(run: LedgerRun, lone: list[dict[str, Any]]) -> None:
    """Every sample exactly once per epoch; losses, weights and learning rate equal to the bit."""
    committed = run.committed()
    expected = [line for line in lone if "committed" in line]
    assert [(line["step"], line["loss"]) for line in committed] == [
        (line["step"], line["loss"]) for line in expected
    ]
    for epoch in range(EPOCHS):
        seen = Counter(i for line in committed if line["epoch"] == epoch for i in line["committed"])
        assert seen == Counter(range(SAMPLES))
    assert_fed_what_was_committed(run)
    (final,) = [line for line in lone if "final" in line]
    finals = [line for line in run.ledger() if "final" in line]
    assert finals
    assert all((line["final"], line["lr"]) == (final["final"], final["lr"]) for line in finals)


def assert_decisions_are_told(run: LedgerRun) -> None:
    """Before each growth stands its decision, with numbers that bear it out."""
    told = [(each.event, each.detail) for each in run.events("decision", "resize")]
    grown = [detail for kind, detail in told if kind == "resize" and detail["to"] > detail["from"]]
    decided = [detail for kind, detail in told if kind == "decision" and detail["grow"]]
    sizes = [(each["world"], each["to"]) for each in decided]
    assert sizes == [(each["from"], each["to"]) for each in grown], told
    for each in decided:
        numbers = each["numbers"]
        assert (numbers["world"], numbers["possible"]) == (each["world"], each["possible"])
        assert numbers["worth_s"] == pytest.approx(numbers["expected_tenure_s"] * numbers["gain"], abs=0.1)
        assert numbers["worth_s"] > numbers["cost_s"] >= 0, each
        assert numbers["gain"] > 0, each
    assert decided[0]["numbers"]["gain"] == pytest.approx(decided[0]["to"] / 2 - 1), "nothing measured yet"


def soon(run: LedgerRun) -> float:
    """Seconds in which no process could have been started, as busy as the machine is; one step is held up."""
    return max(2.0, run.start_seconds() / 2) + run.stood_still


def assert_fed_what_was_committed(run: LedgerRun) -> None:
    """What was committed in a step really went through a model in that step."""
    fed: dict[int, set[int]] = {}
    for line in run.ledger():
        if "fed" in line:
            fed.setdefault(line["step"] + 1, set()).update(line["fed"])
    for line in run.committed():
        assert set(line["committed"]) <= fed[line["step"]]


def test_grow_preempt_and_regrow(make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path) -> None:
    """2 -> 6; an urgent job of another user takes 2 nodes; back to 6; the result of the undisturbed run."""
    with make_run((2, 6), "--hurry", str(hurry)) as run:
        run.wait_for_world(2)
        run.capacity = 4
        run.wait_for_world(6)
        preempted = run.preempt(2)
        for job, node in zip(preempted, ("n7", "n8"), strict=True):
            assert run.replicas[job].wait(run.spec.grace_seconds) == 0, node
        urgent = {"state": "RUNNING", "user": "cv1", "account": "cv", "qos": "urgent"}
        nodes = [
            event.detail["node"] for event in run.wait(lambda: run.events("left")[1:] and run.events("left"))
        ]
        started = {"nodes": nodes, "started": int(time.time())}
        (run.queue / "5000.json").write_text(json.dumps({**urgent, **started}))
        run.wait_for_world(4)
        run.wait(lambda: len(run.events("preempted_by")) == 2)
        run.capacity = 4
        run.wait_for_world(6)
        hurry.touch()
        assert run.end() == 0
    assert_same_result(run, lone)
    by = {"job_id": 5000, "user": "cv1", "account": "cv", "qos": "urgent"}
    assert sorted(event.detail["job_id"] for event in run.events("preempted_by")) == preempted
    assert all(event.detail["preempted_by"] == by for event in run.events("preempted_by"))
    assert [event.detail["reason"] for event in run.events("left")] == ["preempted"] * 2
    assert all(0 < event.detail["seconds"] <= run.spec.grace_seconds for event in run.events("left"))
    assert_decisions_are_told(run)
    resizes = run.events("resize")
    assert (resizes[0].detail["from"], resizes[-1].detail["to"]) == (2, 6)
    assert not any(event.detail["recovered"] for event in resizes)
    assert all(0 <= event.detail["pause_s"] < soon(run) for event in resizes)
    status = run.status()
    assert status is not None
    assert (status.state, status.world_size, status.step, status.total_steps) == ("finished", 6, STEPS, STEPS)
    assert len(status.nodes) == 6


@pytest.mark.long
def test_killed_worker_and_killed_agent(make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path) -> None:
    """kill -9 in mid-step loses the step in flight, nothing else; both are replaced."""
    with make_run((1, 3), "--hurry", str(hurry)) as run:
        run.capacity = 2
        run.wait_for_world(3)
        os.kill(run.pid_of("r1000"), signal.SIGKILL)
        run.wait_for_world(2)
        run.wait_for_world(3)
        assert run.replicas[1000].poll() is None, "its agent starts a killed worker again"
        run.replicas[1001].kill()
        run.wait_for_world(2)
        run.wait_for_world(3)
        hurry.touch()
        assert run.end() == 0
    assert_same_result(run, lone)
    recoveries = [event.detail for event in run.events("resize") if event.detail["recovered"]]
    assert [(each["from"], each["to"]) for each in recoveries] == [(3, 2), (3, 2)]


def test_both_workers_of_a_node_are_killed_at_once(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """Two a node: first those of the replica, then rank 0 and 1 beside the coordinator; both nodes stay."""
    at_once = {"back_off_limit_s": 0.0}  # it grows again
    with make_run((1, 2), "--hurry", str(hurry), workers_per_node=2, policy=at_once) as run:
        run.capacity = 1
        for node in ("r1000", "b0"):
            run.wait_for_world(4)
            for pid in [run.pid_of(f"{node}.{place}.0") for place in range(2)]:
                os.kill(pid, signal.SIGKILL)
            run.wait_for_world(2)
        run.wait_for_world(4)
        hurry.touch()
        assert run.end() == 0
    assert_same_result(run, lone)
    worlds = [world for world, _ in groupby(line["world"] for line in run.committed())]
    assert worlds[-5:] == [4, 2, 4, 2, 4], "a node with one worker is no size"
    assert run.events("crashed") == []


@pytest.mark.long
def test_silence_after_the_last_step_is_no_failure(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """Saving and Python's own shutdown stop the signs of life; the worker must be left to end."""
    hurry.touch()
    with make_run((2, 2), "--hurry", str(hurry), "--slow-end", "5") as run:
        assert run.end() == 0
    assert_same_result(run, lone)
    assert run.events("warning") == []


def test_a_worker_killed_after_the_last_step_fails_the_run(make_run: MakeRun, hurry: Path) -> None:
    """What it was to save may be missing, so the run must neither hang nor call itself finished."""
    hurry.touch()
    with make_run((2, 2), "--hurry", str(hurry), "--killed-at-end") as run:
        assert run.end() != 0
    status = run.status()
    assert status is not None
    assert status.state == "failed"
    assert "signal 9 after the last step" in status.message


def test_killing_every_worker_before_anything_is_saved(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """Nobody holds the state any more, and there is no checkpoint: all begin again at step 0."""
    with make_run((2, 2), "--same-start", "--hurry", str(hurry)) as run:
        run.wait_for_world(2)
        run.wait_for_steps(1)
        for pid in (run.pid_of("b0"), run.pid_of("b1")):
            os.kill(pid, signal.SIGKILL)
        run.wait(lambda: run.committed()[0]["generation"] > 1)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    (said,) = [each for each in warnings_of(run) if each.endswith(BEGINS_ANEW)]
    assert said.startswith("no worker that holds the state of the training is left: ")


@pytest.mark.slow
def test_the_only_node_that_trains_dies_before_anything_is_saved(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """A replica that does not train yet takes over, another baseline is submitted, all begin at step 0."""
    with make_run((1, 2), "--same-start", "--slow-start", "3", "--hurry", str(hurry)) as run:
        run.capacity = 1
        run.wait_for_world(1)
        run.wait(lambda: run.agent_of("r1000"))
        run.wait(lambda: run.events("joined"))  # else it is as if it had never trained
        run.lose_baseline()
        run.wait(lambda: run.events("takeover"))
        run.wait(lambda: run.committed()[0]["generation"] > 1)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert [each for each in warnings_of(run) if each.endswith(BEGINS_ANEW)], run.story()


def test_a_script_that_raises_in_its_first_step_does_not_begin_again(make_run: MakeRun) -> None:
    """The state of a run with one worker is lost by that, too, with nothing saved."""
    with make_run((1, 1), "--raise-at", "1") as run:
        assert run.end() == 1
    status = run.status()
    assert status is not None
    assert status.message.endswith("ended with exit code 1: ValueError: no such layer"), run.story()
    assert not [each for each in warnings_of(run) if each.endswith(BEGINS_ANEW)]


@pytest.mark.long
def test_killed_first_worker(make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path) -> None:
    """Rank 0 dies; the other one keeps the state, and waits for it, since two is the least."""
    with make_run((2, 2), "--hurry", str(hurry)) as run:
        run.wait_for_world(2)
        os.kill(run.pid_of("b0"), signal.SIGKILL)
        run.wait(lambda: run.has_committed("b0.0.1"))
        hurry.touch()
        assert run.end() == 0
    assert_same_result(run, lone)
    assert {line["world"] for line in run.committed()} == {2}
    (waiting,) = run.events("waiting")
    assert waiting.detail == {"have": 1, "need": 2}


@pytest.mark.long
def test_frozen_worker_is_left_behind(make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path) -> None:
    """SIGSTOP: noticed within 3 s, the others go on; the frozen one is replaced."""
    with make_run((1, 2), "--hurry", str(hurry)) as run:
        run.capacity = 1
        run.wait_for_world(2)
        os.kill(run.pid_of("r1000"), signal.SIGSTOP)
        run.wait_for_world(1)
        run.wait_for_world(2)
        hurry.touch()
        assert run.end() == 0
    assert_same_result(run, lone)
    (recovery,) = [event.detail for event in run.events("resize") if event.detail["recovered"]]
    assert recovery["pause_s"] < SILENCE_SECONDS + soon(run)


@pytest.mark.long
def test_joiner_that_dies_while_it_links(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path, tmp_path: Path
) -> None:
    """The generation is given up; the training never stopped; the next attempt succeeds."""
    with make_run((1, 2), "--hurry", str(hurry), "--die-linking", str(tmp_path / "died")) as run:
        run.capacity = 1
        run.wait((tmp_path / "died").exists)
        run.wait_for_world(2)
        hurry.touch()
        assert run.end() == 0
    assert_same_result(run, lone)
    assert [event.detail["recovered"] for event in run.events("resize")] == [False]


@pytest.mark.long
def test_slow_joiner_is_not_waited_for(make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path) -> None:
    """A replica that is still starting when the run ends leaves without a trace."""
    with make_run((1, 2), "--slow-start", "60", "--hurry", str(hurry)) as run:
        run.capacity = 1
        run.wait(lambda: run.replicas)
        run.wait_for_steps(5)
        hurry.touch()
        assert run.end() == 0
    assert_same_result(run, lone)
    assert {line["world"] for line in run.committed()} == {1}
    assert all(agent.returncode is not None for agent in run.replicas.values())


def test_script_that_raises_at_import(make_run: MakeRun) -> None:
    """The run fails at once, with the script's own last words, and its replicas are cancelled."""
    with make_run((2, 4), "--raise-at-import") as run:
        assert run.end(20) == 1
        cancelled = sorted(path.stem for path in run.queue.glob("*.cancel"))
    status = run.status()
    assert status is not None
    assert status.state == "failed"
    assert status.message.endswith("ended with exit code 1: ValueError: no such corpus")
    (crash, *_) = run.events("crashed")
    assert crash.detail["stderr"][-1] == "ValueError: no such corpus"
    assert cancelled == ["1000", "1001"]
    assert run.folder.coordinator() is None


@pytest.mark.long
def test_replicas_that_always_crash_do_not_loop(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """The run survives a replica that raises; after the third time no more are submitted."""
    with make_run((1, 3), "--replica-raises", "--hurry", str(hurry)) as run:
        run.capacity = 2
        run.wait(lambda: [e for e in run.events("warning") if "no more replicas" in e.detail["message"]])
        hurry.touch()
        assert run.end() == 0
    assert_same_result(run, lone)
    assert 3 <= len(run.replicas) <= 4


def test_cancelled_baseline_takes_its_replicas_along(make_run: MakeRun, hurry: Path) -> None:
    """scancel of the baseline: SIGTERM to its agents ends workers and replicas."""
    with make_run((2, 3), "--hurry", str(hurry)) as run:
        run.capacity = 1
        run.wait_for_world(3)
        run.cancel_baseline()
        assert run.end(20) == 143
        assert (run.queue / "1000.cancel").exists()
    status = run.status()
    assert status is not None
    assert status.state == "cancelled"

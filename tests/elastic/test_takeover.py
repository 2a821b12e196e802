"""Whole runs that lose their coordinator, their baseline, or nearly everything: the result stays the same."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ledger_run import LedgerRun, training

from hpctools.elastic.recovery.settings import EXIT_GOES_ON
from tests.elastic.test_run import DELAY, OPTIONS, STEPS, assert_same_result, lone

__all__ = ["lone"]

MakeRun = Callable[..., LedgerRun]
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("forked_workers")]


@pytest.fixture
def hurry(tmp_path: Path) -> Path:
    """Once this file exists the training takes no time any more: the scenario is through."""
    return tmp_path / "hurry"


@pytest.fixture
def make_run(tmp_path: Path, hurry: Path) -> MakeRun:
    def make(nodes: tuple[int, int], *options: str, **more: Any) -> LedgerRun:
        timing = ("--delay", str(DELAY), "--hurry", str(hurry))
        command = training(tmp_path / "out", *OPTIONS, *timing, *options)
        return LedgerRun(tmp_path, command, nodes, **more)

    return make


def longest_gap(run: LedgerRun) -> float:
    """Seconds between two committed steps of the first half, in which steps take about 0.1 s, at most."""
    ends = [line["at"] for line in run.committed()]
    return max(later - earlier for earlier, later in itertools.pairwise(ends))


def recoveries(run: LedgerRun) -> list[tuple[int, int]]:
    """Sizes before and after each recovery that was measured."""
    resizes = [event.detail for event in run.events("resize")]
    return [(each["from"], each["to"]) for each in resizes if each["recovered"]]


def term_of(run: LedgerRun) -> int:
    address = run.folder.coordinator()
    return 0 if address is None else address.term


def test_the_baseline_is_lost_and_another_one_takes_its_place(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """Its only node dies, with the coordinator and rank 0: a replica goes on, a new baseline comes."""
    with make_run((1, 3)) as run:
        run.capacity = 2
        run.wait_for_world(3)
        run.lose_baseline()
        run.wait_for_world(2)
        run.wait_for_world(3)
        hurry.touch()
        assert run.end() == 0
    assert_same_result(run, lone)
    assert longest_gap(run) < 10 + run.stood_still
    (takeover,) = run.events("takeover")
    assert takeover.detail["term"] == 2
    jobs = [job for job in run.folder.jobs() if job.role == "baseline"]
    assert len(jobs) == 2
    assert any(line["worker"].startswith(f"b{jobs[1].job_id}.") for line in run.ledger())
    assert (status := run.status()) is not None
    assert status.state == "finished"


@pytest.mark.slow
def test_the_next_coordinator_cannot_write_where_it_listens_for_a_while(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """Its node is sound: the worker there keeps the state, and goes on when the coordinator is found."""
    with make_run((1, 2)) as run:
        run.capacity = 1
        run.wait_for_world(2)
        unwritable = run.folder.path / "terms" / "2.json"
        unwritable.mkdir()
        run.lose_baseline()
        run.wait(lambda: [each for each in run.events("warning") if "nobody finds" in each.detail["message"]])
        unwritable.rmdir()
        run.wait_for_world(1)
        # Else it may be done before another baseline trains, which is cancelled then, and whose code counts.
        run.wait_for_world(2)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert [event.detail["term"] for event in run.events("takeover")] == [2]


@pytest.mark.slow
def test_the_baseline_is_lost_after_the_last_step(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path, tmp_path: Path
) -> None:
    """A replica only ends its program: another baseline job would find nothing to do."""
    end = tmp_path / "end"
    with make_run((1, 2), "--end", str(end)) as run:
        run.capacity = 1
        run.wait_for_world(2)
        hurry.touch()
        run.wait(lambda: run.events("completed"))
        run.lose_baseline()
        run.wait(lambda: run.events("takeover"))
        end.touch()
        run.end()
    assert_same_result(run, lone)
    assert [job.role for job in run.folder.jobs()] == ["baseline", "replica"], run.story()
    assert [event.event for event in run.events("finished", "failed", "cancelled")] == ["finished"]
    assert run.events("completed")[0].detail == {"step": STEPS}


@pytest.mark.long
def test_one_of_the_baseline_s_nodes_fails(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """Slurm ends the other one, too; that is no wish to end the run."""
    with make_run((2, 3)) as run:
        run.capacity = 1
        run.wait_for_world(3)
        run.wait_for_steps(3)
        before = run.committed()[-1]["generation"]
        run.lose_node()
        run.wait(lambda: len([job for job in run.folder.jobs() if job.role == "baseline"]) == 2)
        run.wait(lambda: run.committed()[-1]["generation"] > before)
        run.wait(lambda: run.committed()[-1]["world"] >= 2)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert [event.event for event in run.events("finished", "failed", "cancelled")] == ["finished"]
    assert len([job for job in run.folder.jobs() if job.role == "baseline"]) == 2


@pytest.mark.long
@pytest.mark.parametrize("replicas", [0, 1])
@pytest.mark.parametrize("ended", ["NODE_FAIL", "CANCELLED"])
def test_one_of_the_baseline_s_nodes_fails_and_slurm_says_so_late(
    ended: str, replicas: int, make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """slurmdbd is behind: nothing is decided until it is known whether somebody has cancelled the job."""
    with make_run((2, 3)) as run:
        run.capacity = replicas
        run.wait_for_world(2 + replicas)
        run.wait_for_steps(3)
        run.lose_node(said=False)
        # Of two nodes alone the one that is left saves, and asks on; a replica has the state and takes over.
        run.wait(lambda: run.events("saved") and (not replicas or run.baseline[0].poll() is not None))
        assert run.folder.ending() is None
        assert run.events("cancelled") == []
        assert len([job for job in run.folder.jobs() if job.role == "baseline"]) == 1
        run.fail_baseline(ended)
        if ended == "CANCELLED":
            run.wait(lambda: run.events("cancelled"))
        else:
            run.wait(lambda: len([job for job in run.folder.jobs() if job.role == "baseline"]) == 2)
            run.wait(lambda: run.committed()[-1]["world"] >= 2)
            hurry.touch()
        run.end()
    baselines = [job for job in run.folder.jobs() if job.role == "baseline"]
    if ended == "CANCELLED":
        (event,) = run.events("cancelled")
        assert event.detail["message"] == "baseline job 1 was cancelled (scancel)"
        assert len(baselines) == 1
    else:
        assert_same_result(run, lone)
        assert len(baselines) == 2
        assert [event.event for event in run.events("finished", "failed", "cancelled")] == ["finished"]


@pytest.mark.long
@pytest.mark.parametrize("dead", [0, 1])
@pytest.mark.parametrize("first", ["the end", "the death"])
def test_one_of_two_nodes_fails_as_the_other_one_is_ended(
    dead: int, first: str, make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """Nothing was saved yet, and both are needed: who is ended has the state, and perhaps nobody coordinates.

    Whether its end is known before or after the other one's death.
    """
    with make_run((2, 2)) as run:
        run.wait_for_world(2)
        run.wait_for_steps(3)
        run.fail_baseline()
        strokes = [lambda: run.baseline[1 - dead].send_signal(signal.SIGTERM), run.baseline[dead].kill]
        for stroke in strokes if first == "the end" else reversed(strokes):
            stroke()
            time.sleep(0.05)
        run.wait(lambda: len([job for job in run.folder.jobs() if job.role == "baseline"]) == 2)
        run.wait(lambda: run.committed()[-1]["worker"].startswith("b1000."))
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert run.events("saved"), run.story()
    assert [event.event for event in run.events("finished", "failed", "cancelled")] == ["finished"]


@pytest.mark.long
def test_the_coordinator_s_node_is_replaced(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """It hands over and its baseline job ends; the next coordinator sees to another one."""
    recovery = {"runPolicy": {"mode": "enforce"}, "metrics": {"crash": {"do": ["replaceNode"]}}}
    with make_run((1, 3), recovery=recovery) as run:
        run.capacity = 2
        run.wait_for_world(3)
        os.kill(run.pid_of("b0."), signal.SIGKILL)
        run.wait_for_world(2)
        run.wait(lambda: len([job for job in run.folder.jobs() if job.role == "baseline"]) == 2)
        run.wait_for_world(3)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert longest_gap(run) < 10 + run.stood_still
    assert [event.detail["action"] for event in run.events("action")] == ["ReplaceNode"]
    assert len(run.events("takeover")) == 1


@pytest.mark.long
def test_a_drained_node_of_a_baseline_that_the_run_needs_leaves_when_another_is_there(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """Both sizes are the same: it trains on until the next baseline job's workers are ready.

    The other node of its job leaves, too: else Slurm would keep both to the end of the run.
    """
    with make_run((2, 2)) as run:
        run.wait_for_world(2)
        (run.queue / "n2.drain").write_text("fan")
        run.wait(lambda: "n2" in {event.detail["node"] for event in run.events("left")})
        run.wait(lambda: [agent.poll() for agent in run.agents[:2]] == [EXIT_GOES_ON] * 2)
        run.wait_for_steps(3)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert longest_gap(run) < 10 + run.stood_still
    assert [event.detail["action"] for event in run.events("action")] == ["Prepare", "Depart"]
    assert len([job for job in run.folder.jobs() if job.role == "baseline"]) == 2
    assert run.events("waiting") == []


@pytest.mark.long
def test_a_coordinator_that_wakes_up_steps_down(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """SIGSTOP of the coordinator's agent: another takes over; SIGCONT: it joins as one of many."""
    with make_run((1, 3)) as run:
        run.capacity = 2
        run.wait_for_world(3)
        run.agent_of("b0").send_signal(signal.SIGSTOP)
        run.wait(lambda: term_of(run) == 2)
        run.wait_for_world(2)
        run.agent_of("b0").send_signal(signal.SIGCONT)
        run.wait_for_world(3)
        hurry.touch()
        assert run.end() == 0
    assert_same_result(run, lone)
    assert longest_gap(run) < 10 + run.stood_still
    # The other one lives in a replica's agent, whose workers end first: it stays for the end of the run.
    assert [each.detail["term"] for each in run.events("takeover")] == [2]
    assert len(run.events("finished", "failed", "cancelled")) == 1
    assert [job.role for job in run.folder.jobs()].count("baseline") == 1


@pytest.mark.long
def test_coordinators_die_one_after_the_other(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """Also with another node at once, and before anything has settled."""
    with make_run((1, 4)) as run:
        run.baseline_capacity = False
        run.capacity = 3
        run.wait_for_world(4)
        run.replicas[1002].kill()
        run.lose_baseline()
        run.wait(lambda: term_of(run) == 2)
        run.replicas[1000].kill()
        run.wait(lambda: term_of(run) == 3)
        run.wait_for_world(3)
        hurry.touch()
        run.end()
    assert_same_result(run, lone)


@pytest.mark.long
def test_a_preempted_coordinator_hands_over(
    make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """Its replica leaves at a step boundary; nobody's work is disturbed by the change in office."""
    with make_run((1, 3)) as run:
        run.baseline_capacity = False
        run.capacity = 2
        run.wait_for_world(3)
        run.lose_baseline()
        run.wait(lambda: term_of(run) == 2)
        run.wait_for_world(2)
        run.wait(lambda: recoveries(run))  # measured, which takes some steps
        run.capacity = 1
        run.replicas[1000].send_signal(signal.SIGTERM)
        run.wait(lambda: term_of(run) == 3)
        run.wait_for_world(1)
        run.wait_for_steps(2)
        hurry.touch()
        run.end()
    assert_same_result(run, lone)
    assert recoveries(run) == [(3, 2)], "only the loss of the baseline disturbed anybody"


def test_replica_jobs_of_several_nodes(make_run: MakeRun, lone: list[dict[str, Any]], hurry: Path) -> None:
    """Only the sizes 1 and 3 are allowed: the replica job has two nodes, and goes as a whole."""
    with make_run((1, 3), sizes=(1, 3)) as run:
        run.capacity = 1
        run.wait_for_world(3)
        run.agent_of("r1000.1").kill()
        run.wait_for_world(1)
        run.wait_for_steps(2)
        hurry.touch()
        run.end()
    assert_same_result(run, lone)
    assert {line["world"] for line in run.committed()} == {1, 3}

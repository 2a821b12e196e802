"""Whole runs in restart mode, with real agents and ranks: what comes and goes, and what is kept."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import datetime
from pathlib import Path

import pytest
from metadata_service import serving, spot_at
from ranks_run import QUICK, STEPS, MakeRun, RanksRun, assert_whole

from hpctools.elastic.notices import SPOT_PATH

pytestmark = pytest.mark.timeout(300)


def test_torchruns_variables_and_hyperpods_import(make_run: MakeRun) -> None:
    """2 nodes with 2 ranks each, nothing happens: what each process was given."""
    scale = {**QUICK, "scale_config": {"2": {"global_batch": 64}}}
    more = {"workers_per_node": 2, "policy": scale, "role": "trainer"}
    with make_run((2, 2), "--steps", "20", "--hyperpod", **more) as run:
        assert run.end() == 0
    assert_whole(run, 20)
    begun = {line["rank"]: line["environ"] for line in run.diary() if "begins" in line}
    assert sorted(begun) == [0, 1, 2, 3]
    for rank, environ in begun.items():
        assert {key: value for key, value in environ.items() if not key.startswith("MASTER")} == {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank % 2),
            "WORLD_SIZE": "4",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": str(rank // 2),
            "GROUP_WORLD_SIZE": "2",
            "ROLE_NAME": "trainer",
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": "4",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "3",
            "TORCHELASTIC_RUN_ID": "train-000001",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCHELASTIC_ERROR_FILE": environ["TORCHELASTIC_ERROR_FILE"],
            "HPCTOOLS_SCALE_CONFIG": '{"global_batch": 64}',
        }
    assert len({environ["MASTER_PORT"] for environ in begun.values()}) == 1
    assert run.events("resize", "crashed", "warning") == []


def test_it_grows_and_shrinks_from_checkpoints_of_the_same_step(make_run: MakeRun) -> None:
    """1 -> 3 nodes; one is preempted within its grace time; each change loses no step."""
    with make_run((1, 3), "--steps", str(STEPS), "--every", "1000000") as run:
        run.wait_for_ranks(1)
        run.capacity = 2
        run.wait_for_ranks(3)
        (job,) = run.preempt(1)
        assert run.replicas[job].wait(run.spec.grace_seconds) == 0
        run.wait_for_ranks(2)
        run.hurry.touch()
        assert run.end() == 0
    rates = [moment.steps_per_second for moment in run.folder.history() if moment.steps_per_second]
    assert rates, "how fast it goes is seen by its calls"
    assert_whole(run, STEPS)
    told = run.told()
    by_generation = {
        line["world"]: {each["told"] for each in told if each["world"] == line["world"]} for line in told
    }
    assert all(len(steps) == 1 for steps in by_generation.values()), "all ranks saw it at the same step"
    begins = [line["begins"] for line in run.diary() if line.get("begins")]
    assert set(begins) == {each["told"] for each in told}
    resizes = [event.detail for event in run.events("resize")]
    assert resizes[-1]["to"] == 2
    assert not any(each["recovered"] for each in resizes)
    for each in resizes:
        assert each["pause_s"] == pytest.approx(sum(each["phases"].values()), abs=1e-3)
        assert 0 <= each["phases"]["save"] < 4
    assert [event.detail["reason"] for event in run.events("left")] == ["preempted"]
    assert run.events("crashed") == []


def test_a_killed_rank_an_agent_that_dies_and_a_frozen_rank(make_run: MakeRun) -> None:
    """Each time all begin again from the last checkpoint; only what the script did itself is counted."""
    with make_run((1, 2), "--steps", str(STEPS), "--every", "20") as run:
        run.capacity = 1
        run.wait_for_ranks(2)
        os.kill(run.pid(1, 2), signal.SIGKILL)
        run.wait(lambda: len(run.events("crashed")) == 1)
        run.wait_for_ranks(2)
        lost = run.pid(1, 2)
        run.replicas[min(run.replicas)].kill()
        run.wait(lambda: not Path(f"/proc/{lost}").exists() or None)
        run.wait_for_ranks(2)
        os.kill(run.pid(1, 2), signal.SIGSTOP)
        run.wait(lambda: len(run.events("resize")) >= 3)
        run.wait_for_ranks(2)
        run.hurry.touch()
        assert run.end() == 0
    assert_whole(run, STEPS)
    (first, *_) = run.events("crashed")
    assert (first.detail["code"], first.detail["rank"]) == (-9, 1)
    reasons = [each.detail["reason"] for each in run.events("charged")]
    assert reasons[0].startswith("rank 1 ended with exit code -9")
    assert len(reasons) == 2, "a later coordinator counts the frozen rank, too, and not the agent"
    counts = [line["environ"]["TORCHELASTIC_RESTART_COUNT"] for line in run.diary() if "begins" in line]
    assert sorted(set(counts)) == ["0", "1", "2"], "the agent's death is not the script's fault"


def test_a_drained_node_and_one_that_the_cloud_takes_back_leave_without_a_lost_step(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All machines here are one: only the second replica's agent looks for notices."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    steps = 4 * STEPS
    with serving() as service, make_run((1, 2), "--steps", str(steps), "--every", "1000000") as run:
        run.capacity = 1
        run.wait_for_ranks(2)
        run.capacity = 0
        (run.queue / "n2.drain").write_text("fan")
        run.wait(lambda: run.events("left"))
        run.wait_for_ranks(1)
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.endpoint)
        run.capacity = 1
        run.wait_for_ranks(2)
        run.capacity = 0
        service.documents[SPOT_PATH] = spot_at(120)
        run.wait(lambda: len(run.events("left")) == 2)
        run.wait_for_ranks(1)
        run.wait((run.queue / "1002.json").exists)
        queued = json.loads((run.queue / "1002.json").read_text())
        run.hurry.touch()
        assert run.end() == 0
    assert_whole(run, steps)
    actions = [(each.detail["action"], each.detail["node"]) for each in run.events("action")]
    assert actions == [("Depart", "n2"), ("Depart", "n3")], run.story()
    left = [(each.detail["node"], each.detail["reason"]) for each in run.events("left")]
    assert left == [("n2", "departed"), ("n3", "departed")]
    assert all(each.detail["seconds"] < 30 for each in run.events("left"))
    assert queued["options"][-1] == "--exclude=n3", "Slurm would give it again; n2 it does not give"
    assert not any(each.detail["recovered"] for each in run.events("resize"))
    assert run.events("crashed", "charged") == []
    begins = [line["begins"] for line in run.diary() if line.get("begins")]
    assert set(begins) == {each["told"] for each in run.told()}
    status = run.status()
    assert status is not None
    assert status.last_resize is not None
    resize = run.events("resize")[-1]
    assert status.last_resize == {**resize.detail, "time": status.last_resize["time"]}
    measured = datetime.fromisoformat(status.last_resize["time"]) - datetime.fromisoformat(resize.time)
    assert abs(measured.total_seconds()) < 1


def test_a_node_that_the_cloud_takes_back_and_that_is_needed_saves_in_time(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other node is there: it trains on as long as its script has time to save."""
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
    with serving() as service:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.endpoint)
        with make_run((1, 1), "--steps", str(4 * STEPS), "--every", "1000000") as run:
            run.wait_for_ranks(1)
            run.baseline_capacity = False
            monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
            service.documents[SPOT_PATH] = spot_at(40)  # asked for every 5 s, and the agent may be late
            run.wait(lambda: run.events("left"))
            run.baseline_capacity = True
            run.wait_for_ranks(1)
            run.hurry.touch()
            run.wait(lambda: (status := run.status()) is not None and status.state == "finished")
    actions = [(each.detail["action"], each.detail["seconds"]) for each in run.events("action")]
    # 25 s before the end it is prepared once more; its script then has as long as it needs, and departs.
    assert list(dict(actions)) == ["Prepare", "Depart"], run.story()
    (departs,) = [seconds for name, seconds in actions if name == "Depart"]
    assert 20.0 < departs <= 25.0, "20 s for the script, and the way out"
    assert len(run.told()) == 1, f"{run.told()}\n{run.story()}"
    assert {line["begins"] for line in run.diary() if "begins" in line} == {0, run.told()[0]["told"]}
    assert run.events("crashed", "charged") == []


def test_a_script_behind_a_wrapper_does_not_write_beside_the_next_generation(tmp_path: Path) -> None:
    """The kernel ends the wrapper with its agent, and the agent that is started again what it waited for."""
    with RanksRun(tmp_path, (1, 2), "--steps", str(STEPS), "--every", "20", wrapped=True) as run:
        run.capacity = 1
        run.wait_for_ranks(2)
        begun = len(run.diary())
        lost = [run.pid(rank, 2) for rank in (0, 1)]
        # Frozen, so that nothing but the agent's successor ends it.
        os.kill(lost[1], signal.SIGSTOP)
        run.start_again("r1000")
        run.wait(lambda: not Path(f"/proc/{lost[1]}").exists() or None)
        run.wait(lambda: len(run.diary()) > begun and run.pid(1, 2) != lost[1])
        run.hurry.touch()
        assert run.end() == 0, run.story()
    assert_whole(run, STEPS)
    assert "had left behind" in run.log.read_text()


def test_a_script_that_never_asks_is_ended_and_begins_again_from_what_it_saved(make_run: MakeRun) -> None:
    policy = {**QUICK, "scale_up_snooze_s": 0.5}
    with make_run((1, 2), "--steps", str(STEPS), "--blind", "--every", "20", policy=policy) as run:
        run.capacity = 1
        run.wait_for_ranks(2)
        (job,) = run.preempt(1)
        assert run.replicas[job].wait(run.spec.grace_seconds) == 0
        run.wait_for_ranks(1)
        run.hurry.touch()
        assert run.end() == 0
    assert_whole(run, STEPS)
    assert run.events("crashed") == []
    assert all(line["begins"] % 20 == 0 for line in run.diary() if "begins" in line)


def test_a_checkpoint_that_takes_too_long_does_not_outlive_the_grace_time(
    make_run: MakeRun, tmp_path: Path
) -> None:
    slow = tmp_path / "slow"
    with make_run((1, 2), "--steps", "100000", "--every", "1000000", "--slow", str(slow)) as run:
        run.capacity = 1
        run.wait_for_ranks(2)
        slow.touch()
        (job,) = run.preempt(1)
        rank, began = run.pid(1, 2), time.monotonic()
        assert run.replicas[job].wait(run.spec.grace_seconds) == 0
        assert time.monotonic() - began > 3, "it had time to save"
        assert not Path(f"/proc/{rank}").exists()
        run.wait_for_ranks(1)


def test_a_run_whose_steps_do_not_come_is_started_again_by_the_rules(
    make_run: MakeRun, tmp_path: Path
) -> None:
    """The policy's rules see the steps that asking for events tells, and lines of the script's output."""
    recovery = {
        "runPolicy": {"mode": "enforce"},
        "metrics": {"hang": {"seconds": 3, "do": ["restartAll", "fail"]}},
        "logMonitoringConfiguration": [{"name": "lines", "logPattern": "saved", "do": ["restartAll"]}],
    }
    slow = tmp_path / "slow"
    with make_run((1, 1), "--steps", str(STEPS), "--slow", str(slow), recovery=recovery) as run:
        run.wait_for_ranks(1)
        slow.touch()
        run.wait(lambda: run.events("finding"))
        slow.unlink()
        run.wait_for_ranks(1)
        run.hurry.touch()
        assert run.end() == 0
    assert_whole(run, STEPS)
    (finding,) = run.events("finding")
    assert finding.detail["cause"] == "hang"
    (resize,) = run.events("resize")
    assert resize.detail["recovered"]
    assert run.events("crashed") == []
    (charged,) = run.events("charged")
    assert charged.detail["reason"].startswith("hang")


def test_a_script_that_always_raises_fails_the_run_with_its_last_words(make_run: MakeRun) -> None:
    recovery = {"runPolicy": {"restartPolicy": {"maxFullJobRestarts": 1}}}
    with make_run((1, 2), "--crash", recovery=recovery) as run:
        assert run.end() == 49
    status = run.status()
    assert status is not None
    assert status.state == "failed"
    assert "ended with exit code 1: ValueError: no such corpus (after 1 restarts" in status.message
    assert len(run.events("crashed")) == 2
    assert json.loads((run.queue / "1000.json").read_text())["state"] == "CANCELLED"


def test_a_new_coordinator_disturbs_no_rank(make_run: MakeRun) -> None:
    """The agent with the coordinator dies; another one takes over, and all begin again without that node."""
    with make_run((2, 3), "--steps", str(STEPS), "--every", "20") as run:
        run.capacity = 1
        run.wait_for_ranks(3)
        run.baseline[0].kill()
        run.wait(lambda: run.events("takeover"))
        run.wait_for_ranks(2)
        run.hurry.touch()
        run.wait(lambda: (status := run.status()) is not None and status.state == "finished")
    assert (run.out / "checkpoint").read_text() == str(STEPS)

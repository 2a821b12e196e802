"""Whole runs in restart mode that are ended from outside, or lose their baseline."""

from __future__ import annotations

import signal
import time
from datetime import datetime

import pytest
from ranks_run import QUICK, STEPS, MakeRun, RanksRun, assert_whole

from hpctools.elastic.folder import Ending
from hpctools.elastic.last_save import AGAIN_SECONDS, NEARLY_UP

ENDLESS = ("--steps", "1000000", "--every", "10000000")
pytestmark = pytest.mark.timeout(300)


def assert_saved_at_the_event(run: RanksRun, world: int) -> None:
    """All ranks were told at the same step, did no other after it, and that one is saved."""
    last = max(line["step"] for line in run.diary() if "step" in line)
    assert [line["world"] for line in run.told() if line["told"] == last] == [world] * world, run.story()
    assert (run.out / "checkpoint").read_text() == str(last)
    assert run.events("crashed", "charged") == []


def state(run: RanksRun) -> tuple[str, str]:
    status = run.status()
    assert status is not None
    return status.state, status.message


@pytest.mark.parametrize("by", ["scancel", "hp-cancel"])
def test_a_script_that_asks_saves_its_last_step_when_the_run_is_cancelled(make_run: MakeRun, by: str) -> None:
    """Also where GraceTime is 0: that is for who is preempted."""
    with make_run((1, 2), *ENDLESS, grace=0.0) as run:
        run.capacity = 1
        run.wait_for_ranks(2)
        if by == "hp-cancel":
            run.folder.ask_to_end(Ending("cancelled", "cancelled by somebody"))
            for agent in run.replicas.values():
                agent.send_signal(signal.SIGTERM)
        run.cancel_baseline()
        assert run.end() == 143, run.story()
    assert_saved_at_the_event(run, 2)
    assert state(run)[0] == "cancelled"
    assert len(run.events("told_to_end")) == 1


def test_a_script_that_does_not_ask_has_time_for_a_handler_of_its_own(make_run: MakeRun) -> None:
    with make_run((1, 2), *ENDLESS, "--blind", "--term", "4") as run:
        run.capacity = 1
        run.wait_for_ranks(2)
        run.cancel_baseline()
        assert run.end() == 143, run.story()
    ended = [line["rank"] for line in run.diary() if "term" in line and line["world"] == 2]
    assert sorted(ended) == [0, 1]
    assert state(run)[0] == "cancelled"


@pytest.mark.parametrize("by", ["scancel", "hp-cancel"])
def test_who_cancels_twice_does_not_wait_for_a_checkpoint(make_run: MakeRun, by: str) -> None:
    slow = {**QUICK, "graceful_shutdown_s": 600.0}
    with make_run((1, 1), *ENDLESS, policy=slow, kill_wait_s=600.0) as run:
        run.wait_for_ranks(1)
        run.slow.touch()
        run.cancel_baseline()
        run.wait(lambda: run.events("told_to_end"))
        if by == "hp-cancel":
            run.folder.ask_again()
        else:
            told = time.monotonic()
            run.wait(lambda: time.monotonic() - told > AGAIN_SECONDS + 1)
            run.cancel_baseline()
        assert run.end() == 143, run.story()
    assert state(run)[0] == "cancelled"
    assert not (run.out / "checkpoint").exists()


def test_a_checkpoint_that_takes_longer_than_slurm_waits_is_given_up(make_run: MakeRun) -> None:
    with make_run((1, 1), *ENDLESS, kill_wait_s=8.0) as run:
        run.wait_for_ranks(1)
        run.slow.touch()
        run.cancel_baseline()
        assert run.end() == 143, run.story()
    (told,) = run.events("told_to_end")
    assert told.detail["seconds"] == 6.0
    assert state(run)[0] == "cancelled"


def test_a_script_that_asks_is_told_before_the_runs_time_is_up(make_run: MakeRun) -> None:
    """A minute before; nobody has sent a signal by then."""
    with make_run((1, 1), *ENDLESS) as run:
        run.wait_for_ranks(1)
        run.limit_time(50.0)
        assert run.end() == 143, run.story()
    assert_saved_at_the_event(run, 1)
    assert state(run) == ("cancelled", NEARLY_UP)


def test_a_script_that_does_not_ask_goes_on_until_its_time_is_up(make_run: MakeRun) -> None:
    steps = 4 * STEPS
    with make_run((1, 1), "--steps", str(steps), "--blind") as run:
        run.wait_for_ranks(1)
        end = run.limit_time(50.0)
        run.wait(lambda: (known := run.folder.time_limit()) is not None and known.end == end)
        seen = run.count(1)
        run.wait(lambda: run.count(1) > seen + 50)  # some ticks of the coordinator
        run.hurry.touch()
        assert run.end() == 0, run.story()
    assert_whole(run, steps)
    assert run.events("told_to_end") == []


def test_a_baseline_that_is_lost_is_waited_for_and_the_training_goes_on(make_run: MakeRun) -> None:
    """All of its nodes die: a replica alone is fewer than the least, until there is another baseline job."""
    with make_run((2, 3), "--steps", str(STEPS), "--every", "20") as run:
        run.capacity = 1
        run.wait_for_ranks(3)
        run.wait((run.out / "checkpoint").exists)
        run.baseline_capacity = False
        run.lose_baseline()
        run.wait(lambda: run.events("waiting"))
        run.wait(lambda: run.world() == 0 and state(run)[1].startswith("waits for workers"))
        stopped, done = max((line["at"], line["step"]) for line in run.diary() if "step" in line)
        run.baseline_capacity = True
        run.wait_for_ranks(3)
        run.hurry.touch()
        assert run.end() == 0, run.story()
    assert_whole(run, STEPS)
    assert run.events("takeover")
    assert [(each.detail["have"], each.detail["need"]) for each in run.events("waiting")] == [(1, 2)]
    begins = {line["begins"] for line in run.diary() if "begins" in line}
    assert any(done - 20 <= each <= done for each in begins), (done, begins, run.story())
    resize = run.events("resize")[0]
    took = datetime.fromisoformat(resize.time).timestamp() - stopped
    about = pytest.approx(took, abs=2.5 + run.stood_still)
    assert resize.detail["pause_s"] == about, "also while nobody coordinated"
    assert resize.detail["pause_s"] == pytest.approx(sum(resize.detail["phases"].values()), abs=1e-3)
    assert run.events("charged") == [], "a lost node is not the script's fault"

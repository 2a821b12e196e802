"""A run that saves before it ends, in a Slurm in memory: waited for, and hurried only by who asks again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hpctools.elastic.folder import Ending, RunFolder, RunStatus
from hpctools.errors import UnreachableError
from hpctools.submit import asking
from hpctools.submit.cancel import cancel_replicas, cancel_runs
from hpctools.testing.clock import FakeClock
from hpctools.testing.runs import make_run
from hpctools.testing.slurm import FakeSlurm

BY_SLURM = Ending("cancelled", "baseline job 101 ran out of time (--time)")
KILL_WAIT = 30.0


class Slurm(FakeSlurm):
    """Its jobs get SIGTERM, and take their time to end."""

    def cancel(self, job_ids: Sequence[int]) -> None:
        super().cancel(job_ids)
        for job_id in job_ids:
            self.change(job_id, state="COMPLETING", nodes=("n1",))


@pytest.fixture
def slurm() -> Slurm:
    return Slurm()


@pytest.fixture
def folder(tmp_path: Path, slurm: Slurm) -> RunFolder:
    """A run with a running baseline job 101."""
    folder = make_run(tmp_path)
    comment = f"--comment=hp-run:{folder.path.name}"
    folder.append_job("baseline", slurm.submit([comment, "--qos=normal"], folder.path / "run.json"))
    slurm.change(101, state="RUNNING", nodes=("n1",))
    folder.write_status(RunStatus("running", step=7))
    return folder


def cancel(folder: RunFolder, slurm: Slurm, clock: FakeClock | None = None, request: str = "") -> list[str]:
    """What is said."""
    said: list[str] = []
    before = asking.STATED.set(request)
    try:
        cancel_runs([folder], slurm, (clock or FakeClock()).sleep, by="nlp1", say=said.append)
    finally:
        asking.STATED.reset(before)
    return said


def test_it_is_waited_for_until_it_has_saved_and_keeps_what_its_coordinator_says(
    folder: RunFolder, slurm: Slurm
) -> None:
    """It has KillWait less 5.5 s for that: before it says so it is not to be called cancelled."""
    states: list[str] = []

    def look() -> None:
        states.append(status.state if (status := folder.status()) else "")

    def save() -> None:
        look()
        folder.write_status(RunStatus("cancelled", step=9, message="saved"))
        folder.append_event("cancelled", message="saved")

    clock = FakeClock(events={11.0: look, 24.5: save})
    said = cancel(folder, slurm, clock)
    assert states == ["running", "running"]
    assert clock.now < KILL_WAIT, "its job may take long to go after that"
    status = folder.status()
    assert status is not None
    assert (status.step, status.message, len(folder.events())) == (9, "saved", 1)
    assert said == [
        "run train-3fa9c1: may be saving, and is waited for, 35 s at most; hp-cancel again gives that up",
    ]


def test_one_whose_coordinator_slurm_has_killed_is_recorded_as_cancelled(
    folder: RunFolder, slurm: Slurm
) -> None:
    clock = FakeClock()
    cancel(folder, slurm, clock)
    assert KILL_WAIT + 5 <= clock.now <= KILL_WAIT + 7
    status = folder.status()
    assert status is not None
    assert status.state == "cancelled"


def test_a_batch_script_that_ends_the_replicas_does_not_wait_so_long(folder: RunFolder, slurm: Slurm) -> None:
    """Its own job is being ended: in KillWait it would be killed before it could say how the run ended."""
    for _ in range(2):
        comment = f"--comment=hp-run:{folder.path.name}"
        folder.append_job("replica", slurm.submit([comment, "--qos=elastic"], folder.path / "run.json"))
    slurm.change(101, state="COMPLETING")
    clock = FakeClock()
    cancel_replicas(folder, slurm, clock.sleep, 101, lambda job_id: "CANCELLED")
    assert (sorted(slurm.cancelled), clock.now < 15) == ([102, 103], True)
    status = folder.status()
    assert status is not None
    assert status.state == "cancelled"


def test_one_that_ends_at_once_is_not_waited_for(folder: RunFolder, slurm: Slurm) -> None:
    clock = FakeClock(events={1.0: lambda: slurm.change(101, state="CANCELLED", nodes=())})
    cancel(folder, slurm, clock)
    assert clock.now == 1.0


def test_who_tries_again_over_a_line_that_broke_is_not_who_asks_again(
    folder: RunFolder, slurm: Slurm
) -> None:
    cancel(folder, slurm, request="a1")
    cancel(folder, slurm, request="a1")
    assert not folder.was_asked_again()
    folder.write_status(RunStatus("running"))
    said = cancel(folder, slurm, request="b2")
    assert folder.was_asked_again()
    assert said == ["run train-3fa9c1: cancelled again, so what it saves is not waited for any more"]


def test_one_that_did_not_get_through_to_slurm_does_not_count(folder: RunFolder, slurm: Slurm) -> None:
    slurm.failure = UnreachableError("down")
    for _ in range(2):
        with pytest.raises(UnreachableError):
            cancel(folder, slurm)
    assert folder.ending() is not None
    slurm.failure = None
    cancel(folder, slurm)
    assert not folder.was_asked_again()


def test_the_first_hp_cancel_after_the_time_was_up_lets_it_save(folder: RunFolder, slurm: Slurm) -> None:
    folder.ask_to_end(BY_SLURM)
    cancel(folder, slurm)
    assert not folder.was_asked_again()
    assert folder.ending() == BY_SLURM


@pytest.mark.parametrize("torn", ["", "[]", '{"sta'])
@pytest.mark.parametrize("name", ["end.json", "asked.json"])
def test_a_wish_that_a_full_disk_has_torn_keeps_nobody_from_cancelling(
    folder: RunFolder, slurm: Slurm, torn: str, name: str
) -> None:
    (folder.path / name).write_text(torn)
    cancel(folder, slurm)
    assert slurm.cancelled == [101]
    assert folder.ending() == Ending("cancelled", "cancelled by nlp1")
    assert not folder.was_asked_again()
    cancel(folder, slurm)
    assert folder.was_asked_again()


def test_kill_wait_is_the_runs(folder: RunFolder, slurm: Slurm) -> None:
    longer = replace(folder.spec(), kill_wait_s=60.0)
    (folder.path / "run.json").write_text(json.dumps(longer.to_json()))
    clock = FakeClock()
    cancel(folder, slurm, clock)
    assert clock.now >= 65

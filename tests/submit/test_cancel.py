"""Ending a run against a Slurm in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpctools.elastic.folder import RunStatus
from hpctools.errors import UnreachableError
from hpctools.submit.cancel import Cancelled, cancel_replicas, cancel_run
from hpctools.testing.clock import FakeClock
from hpctools.testing.runs import make_run
from hpctools.testing.slurm import FakeSlurm

OPTIONS = {"baseline": ["--qos=normal"], "replica": ["--qos=elastic"]}


@pytest.fixture
def run(tmp_path):
    """A run with a running baseline job 101 and replica jobs 102 (running) and 103 (pending)."""
    folder = make_run(tmp_path)
    slurm = FakeSlurm()
    for role in ("baseline", "replica", "replica"):
        add(folder, slurm, role)
    slurm.change(101, state="RUNNING", nodes=("n1", "n2"))
    slurm.change(102, state="RUNNING", nodes=("n3",))
    return folder, slurm


def add(folder, slurm, role, record=True):
    comment = f"--comment=hp-run:{folder.path.name}"
    number = slurm.submit([comment, *OPTIONS[role]], folder.path / "run.json")
    if record:
        folder.append_job(role, number)
    return number


def test_the_baseline_goes_first_and_every_replica_after_it(run):
    folder, slurm = run
    folder.write_status(RunStatus("running", step=7, nodes=("n1",), world_size=1))
    done = cancel_run(folder, slurm, FakeClock().sleep, by="nlp1")
    assert done == Cancelled("train-3fa9c1", baseline=(101,), replicas=(102, 103), remaining=())
    assert slurm.cancelled == [101, 102, 103]
    status = folder.status()
    assert (status.state, status.message, status.step, status.nodes) == (
        "cancelled",
        "cancelled by nlp1",
        7,
        (),
    )
    assert [event.event for event in folder.events()] == ["cancelled"]


def test_a_replica_that_appears_meanwhile_is_cancelled_too(run):
    folder, slurm = run
    clock = FakeClock(events={0.5: lambda: add(folder, slurm, "replica", record=False)})
    done = cancel_run(folder, slurm, clock.sleep, by="nlp1")
    assert done.replicas == (102, 103, 104)


def test_cancelling_twice_says_that_nothing_was_left(run):
    folder, slurm = run
    cancel_run(folder, slurm, FakeClock().sleep, by="nlp1")
    again = cancel_run(folder, slurm, FakeClock().sleep, by="root")
    assert again == Cancelled("train-3fa9c1", (), (), ())
    assert folder.status().message == "cancelled by nlp1"
    assert len(folder.events()) == 1


def test_a_finished_run_stays_finished(run):
    folder, slurm = run
    for number in (101, 102, 103):
        slurm.change(number, state="COMPLETED")
    folder.write_status(RunStatus("finished"))
    assert cancel_run(folder, slurm, FakeClock().sleep, by="nlp1").baseline == ()
    assert folder.status().state == "finished"


def test_jobs_that_do_not_end_are_named_and_the_run_is_not_called_cancelled(run, monkeypatch):
    folder, slurm = run
    monkeypatch.setattr(slurm, "change", lambda *arguments, **changes: None)
    clock = FakeClock()
    done = cancel_run(folder, slurm, clock.sleep, by="nlp1")
    assert done.remaining == (101, 102, 103)
    assert clock.now == pytest.approx(10.5)
    assert slurm.cancelled == [101, 102, 103]  # asked once each
    assert folder.status() is None


def test_another_users_job_with_our_number_is_not_touched(run):
    folder, slurm = run
    slurm.queue[102] = replace(slurm.queue[102], comment="hp-run:other")
    cancel_run(folder, slurm, FakeClock().sleep, by="nlp1")
    assert slurm.cancelled == [101, 103]


def test_at_its_end_the_baseline_cancels_only_replicas(run):
    folder, slurm = run
    folder.write_status(RunStatus("finished"))
    done = cancel_replicas(folder, slurm, FakeClock().sleep)
    assert (done.baseline, done.replicas) == ((), (102, 103))
    assert slurm.queue[101].state == "RUNNING"
    assert folder.status().state == "finished"


@pytest.mark.parametrize(("state", "final"), [("RUNNING", "failed"), ("COMPLETING", "cancelled")])
def test_a_run_that_could_not_say_how_it_ended_gets_a_final_state(run, state, final):
    folder, slurm = run
    slurm.change(101, state=state)
    slurm.change(102, state="PENDING")
    slurm.change(103, state="PENDING")
    folder.write_status(RunStatus("running"))
    cancel_replicas(folder, slurm, FakeClock().sleep)
    assert folder.status().state == final
    assert (folder.ending() is not None) == (final == "cancelled")


def test_a_run_whose_baseline_agents_were_killed_goes_on_with_its_replicas(run):
    """Slurm has not ended the job, and a replica runs: its agent takes over."""
    folder, slurm = run
    slurm.change(101, state="RUNNING")
    slurm.change(102, state="RUNNING")
    folder.write_status(RunStatus("running"))
    assert cancel_replicas(folder, slurm, FakeClock().sleep) == Cancelled("train-3fa9c1", (), (), ())
    assert slurm.cancelled == []
    assert folder.status().state == "running"
    assert folder.ending() is None


def test_without_a_controller_nothing_is_recorded(run):
    folder, slurm = run
    slurm.failure = UnreachableError("down")
    with pytest.raises(UnreachableError):
        cancel_run(folder, slurm, FakeClock().sleep, by="nlp1")
    assert folder.status() is None

"""Ending a run against a Slurm in memory."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from hpctools.elastic.folder import RunStatus
from hpctools.errors import SubmitError, UnreachableError
from hpctools.submit.cancel import Cancelled, cancel_replicas, cancel_runs
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


def cancel_run(folder, slurm, sleep, *, by):
    (done,) = cancel_runs([folder], slurm, sleep, by=by)
    return done


def add(folder, slurm, role, record=True):
    comment = f"--comment=hp-run:{folder.path.name}"
    number = slurm.submit([comment, *OPTIONS[role]], folder.path / "run.json")
    if record:
        folder.append_job(role, number)
    return number


def test_what_waits_goes_first_then_the_baseline_and_its_replicas(run):
    folder, slurm = run
    folder.write_status(RunStatus("running", step=7, nodes=("n1",), world_size=1))
    done = cancel_run(folder, slurm, FakeClock().sleep, by="nlp1")
    assert done == Cancelled("train-3fa9c1", baseline=(101,), replicas=(102, 103), remaining=())
    assert slurm.cancelled == [103, 101, 102]
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


def test_who_cancels_again_does_not_want_to_wait_for_what_is_saved(run):
    folder, slurm = run
    cancel_run(folder, slurm, FakeClock().sleep, by="nlp1")
    assert not folder.was_asked_again()
    cancel_run(folder, slurm, FakeClock().sleep, by="nlp1")
    assert folder.was_asked_again()


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
    assert slurm.cancelled == [103, 101, 102]  # asked once each
    assert folder.status() is None


def test_another_users_job_with_our_number_is_not_touched(run):
    folder, slurm = run
    slurm.queue[102] = replace(slurm.queue[102], comment="hp-run:other")
    cancel_run(folder, slurm, FakeClock().sleep, by="nlp1")
    assert slurm.cancelled == [103, 101]


def test_a_run_whose_jobs_file_cannot_be_read_ends_and_keeps_no_other_from_ending(run, tmp_path):
    """Its jobs are found by their comment; which is a replica the QoS tells."""
    folder, slurm = run
    other = make_run(tmp_path, "other-000001")
    last = add(other, slurm, "baseline")
    (folder.path / "jobs.jsonl").write_bytes(b"\xff")
    done = cancel_runs([folder, other], slurm, FakeClock().sleep, by="nlp1")
    assert [(each.baseline, each.replicas) for each in done] == [((101,), (102, 103)), ((last,), ())]


def test_at_its_end_a_baseline_cancels_replicas_also_when_the_jobs_file_cannot_be_read(run):
    folder, slurm = run
    (folder.path / "jobs.jsonl").write_bytes(b"\xff")
    folder.write_status(RunStatus("finished"))
    assert cancel_replicas(folder, slurm, FakeClock().sleep, 101).replicas == (102, 103)


@pytest.mark.parametrize(("later", "cancelled"), [(0, [103, 101, 102]), (86400, [103, 101])])
def test_a_job_without_a_comment_is_ours_by_its_number_unless_it_was_submitted_later(run, later, cancelled):
    """Slurm uses ids again: a plain job of the same user was cancelled."""
    folder, slurm = run
    slurm.queue[102] = replace(slurm.queue[102], comment="", submitted=int(time.time()) + later)
    cancel_run(folder, slurm, FakeClock().sleep, by="nlp1")
    assert slurm.cancelled == cancelled
    assert slurm.queue[102].state == ("RUNNING" if later else "CANCELLED")


def test_at_its_end_the_baseline_cancels_only_replicas(run):
    folder, slurm = run
    folder.write_status(RunStatus("finished"))
    done = cancel_replicas(folder, slurm, FakeClock().sleep, 101)
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
    cancel_replicas(folder, slurm, FakeClock().sleep, 101, ended_as=lambda job_id: "CANCELLED")
    assert folder.status().state == final
    assert (folder.ending() is not None) == (final == "cancelled")
    said = "its agents ended before" if final == "failed" else "baseline job 101 was cancelled (scancel)"
    assert folder.status().message.startswith(said)


def test_a_run_whose_baseline_agents_were_killed_goes_on_with_its_replicas(run):
    """Slurm has not ended the job, and a replica runs: its agent takes over."""
    folder, slurm = run
    slurm.change(101, state="RUNNING")
    slurm.change(102, state="RUNNING")
    folder.write_status(RunStatus("running"))
    assert cancel_replicas(folder, slurm, FakeClock().sleep, 101) == Cancelled("train-3fa9c1", (), (), ())
    assert slurm.cancelled == []
    assert folder.status().state == "running"
    assert folder.ending() is None


def test_a_run_that_ran_out_of_time_says_so(run):
    folder, slurm = run
    slurm.change(101, state="COMPLETING")
    folder.write_status(RunStatus("running"))
    cancel_replicas(folder, slurm, FakeClock().sleep, 101, lambda job_id: "TIMEOUT")
    assert (folder.status().state, folder.status().message) == (
        "cancelled",
        "baseline job 101 ran out of time (--time)",
    )
    assert folder.ending().message == "baseline job 101 ran out of time (--time)"


@pytest.mark.parametrize("another", ["a replica", "a baseline job that waits"])
def test_a_run_that_lost_a_node_of_its_baseline_goes_on(run, another):
    """The batch script is on a node that is still there; Slurm ends the whole job."""
    folder, slurm = run
    slurm.change(101, state="COMPLETING")
    if another != "a replica":
        slurm.change(102, state="COMPLETED")
        add(folder, slurm, "baseline")
    folder.write_status(RunStatus("running"))
    done = cancel_replicas(folder, slurm, FakeClock().sleep, 101, lambda job_id: "NODE_FAIL")
    assert done == Cancelled("train-3fa9c1", (), (), ())
    assert (slurm.cancelled, folder.status().state, folder.ending()) == ([], "running", None)


@pytest.mark.parametrize("replica", ["RUNNING", "PENDING"])
def test_a_run_of_whose_baseline_slurm_does_not_say_why_it_ends_goes_on_where_somebody_can_ask(run, replica):
    """A replica's agent takes over, and asks on; where there is none the run cannot go on."""
    folder, slurm = run
    slurm.change(101, state="COMPLETING")
    slurm.change(102, state=replica)
    slurm.change(103, state="PENDING")
    folder.write_status(RunStatus("running"))
    cancel_replicas(folder, slurm, FakeClock().sleep, 101, lambda job_id: "")
    assert folder.ending() is None
    status = folder.status()
    if replica == "RUNNING":
        assert (slurm.cancelled, status.state) == ([], "running")
    else:
        assert (sorted(slurm.cancelled), status.state) == ([102, 103], "cancelled")
        assert status.message == "baseline job 101 was ended, and Slurm does not say why"


def test_a_run_that_lost_its_baseline_and_has_nothing_else_has_failed(run):
    folder, slurm = run
    slurm.change(101, state="COMPLETING")
    slurm.change(102, state="PENDING")
    folder.write_status(RunStatus("running"))
    done = cancel_replicas(folder, slurm, FakeClock().sleep, 101, lambda job_id: "NODE_FAIL")
    assert done.replicas == (102, 103)
    assert (folder.status().state, folder.status().message) == (
        "failed",
        "baseline job 101 is lost (NODE_FAIL); see the job's output",
    )


def test_a_job_in_whose_place_another_one_is_ends_without_the_run(run):
    """Of a run of one size: a node is drained, another baseline job trains, this one's agents have left."""
    folder, slurm = run
    for job in (102, 103):
        slurm.change(job, state="COMPLETED")
    slurm.change(add(folder, slurm, "baseline"), state="RUNNING")
    folder.write_status(RunStatus("running"))
    cancel_replicas(folder, slurm, FakeClock().sleep, 101)
    assert (slurm.cancelled, folder.status().state) == ([], "running")


def test_many_runs_are_ended_together(tmp_path):
    """Three runs of three jobs each: one command for all that wait, one for baselines, one for replicas."""
    slurm, calls = FakeSlurm(), []
    folders = [make_run(tmp_path, f"sweep-3fa9c1_{index}") for index in range(3)]
    for folder in folders:
        for role in ("baseline", "replica", "replica"):
            add(folder, slurm, role)
        folder.write_status(RunStatus("running"))
    for job in (101, 102, 104, 105):  # the last run waits for an earlier one's end
        slurm.change(job, state="RUNNING")
    cancel, jobs = slurm.cancel, slurm.jobs
    slurm.cancel = lambda ids: (calls.append(list(ids)), cancel(ids))
    slurm.jobs = lambda **which: (calls.append("squeue"), jobs(**which))[1]
    done = cancel_runs(folders, slurm, FakeClock().sleep, by="nlp1")
    assert calls == ["squeue", [107], [103, 106, 108, 109], [101, 104], [102, 105], "squeue"]
    assert [(each.baseline, each.replicas) for each in done] == [
        ((101,), (102, 103)),
        ((104,), (105, 106)),
        ((107,), (108, 109)),
    ]
    assert {folder.status().state for folder in folders} == {"cancelled"}


def test_without_a_controller_nothing_is_recorded(run):
    folder, slurm = run
    slurm.failure = UnreachableError("down")
    with pytest.raises(UnreachableError):
        cancel_run(folder, slurm, FakeClock().sleep, by="nlp1")
    assert folder.status() is None


@pytest.mark.parametrize("own", [None, 102, 999])
def test_who_is_no_baseline_job_of_the_run_ends_no_replicas_and_settles_nothing(run, own):
    folder, slurm = run
    slurm.change(102, state="PENDING")
    folder.write_status(RunStatus("running"))
    with pytest.raises(SubmitError, match="end the run with hp-cancel train-3fa9c1"):
        cancel_replicas(folder, slurm, FakeClock().sleep, own)
    assert (slurm.cancelled, folder.status().state, folder.ending()) == ([], "running", None)

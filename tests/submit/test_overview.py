"""A run at a glance, from its folder and the queue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpctools.elastic.folder import Event, JobRecord, RunStatus
from hpctools.elastic.spec import RunSpec
from hpctools.slurm.types import Job
from hpctools.submit.overview import JobView, Preemption, overview

SPEC = RunSpec(
    id="train-3fa9c1",
    name="train",
    user="nlp1",
    cluster="",
    min_nodes=2,
    max_nodes=4,
    workers_per_node=1,
    command=("x",),
    workdir="/",
    replica_options=(),
    replica_script="/replica.sh",
    created="2026-02-03T10:00:00.000+00:00",
)
RECORDS = [JobRecord("t", "baseline", 12), JobRecord("t", "replica", 13), JobRecord("t", "replica", 14)]
RUNNING = RunStatus("running", generation=3, world_size=3, nodes=("n1", "n2", "n3"), min_nodes=2, max_nodes=4)


def job(number: int, state: str = "RUNNING", **changes: object) -> Job:
    base = Job(number, "train", "nlp1", "nlp", "gpu", "normal", state, comment="hp-run:train-3fa9c1")
    return replace(base, **changes)  # type: ignore[arg-type]


def test_a_running_run_shows_its_jobs_with_roles_nodes_and_reasons():
    queue = [
        job(14, "PENDING", reason="Resources", qos="elastic"),
        job(13, "CANCELLED", qos="elastic"),
        job(15, nodes=("n3",), qos="elastic"),  # submitted, not yet recorded
        job(12, nodes=("n1", "n2")),
        job(16, comment="hp-run:other-000000"),
        job(17, comment=""),
    ]
    run = overview(SPEC, RUNNING, RECORDS, [], queue)
    assert (run.state, run.note, run.status, run.is_over) == ("running", "", RUNNING, False)
    assert run.jobs == (
        JobView(12, "baseline", "RUNNING", "None", ("n1", "n2")),
        JobView(14, "replica", "PENDING", "Resources", ()),
        JobView(15, "replica", "RUNNING", "None", ("n3",)),
    )
    assert run.ended_jobs == 1


def test_a_recorded_id_that_another_run_has_by_now_is_not_ours():
    assert overview(SPEC, RUNNING, RECORDS, [], [job(13, comment="hp-run:other-000000")]).jobs == ()


@pytest.mark.parametrize(
    ("status", "queue", "state", "note"),
    [
        (None, [job(12, "PENDING", reason="Priority")], "pending", "its baseline job 12 waits: Priority"),
        (
            None,
            [job(12, "PENDING")],
            "pending",
            "its baseline job 12 waits: the scheduler looks at it next",
        ),
        (
            None,
            [job(12, "RESV_DEL_HOLD", reason="Reservation course was deleted")],
            "pending",
            "its baseline job 12 waits: Reservation course was deleted",
        ),
        (
            None,
            [job(12, "SPECIAL_EXIT", reason="JobHeldUser")],
            "pending",
            "its baseline job 12 waits: JobHeldUser",
        ),
        (None, [job(12)], "starting", ""),
        (RunStatus("starting"), [job(12)], "starting", "no worker has come to its elastic.Loader yet"),
        (RUNNING, [job(12)], "running", ""),
        (RUNNING, [job(12, "COMPLETING")], "running", ""),
        (RUNNING, [], "lost", "its baseline job 12 is no longer in the queue"),
        (RUNNING, [job(12, "NODE_FAIL")], "lost", "its baseline job 12 ended as NODE_FAIL"),
        (None, [job(12, "CANCELLED by 0")], "lost", "its baseline job 12 ended as CANCELLED by 0"),
        (
            RUNNING,
            [job(12, "NODE_FAIL"), job(15, nodes=("n3",), qos="elastic")],
            "running",
            "its baseline job 12 ended as NODE_FAIL; its replicas go on, and another one is submitted",
        ),
        (
            RUNNING,
            [
                job(12, "NODE_FAIL"),
                job(15, nodes=("n3",), qos="elastic"),
                job(16, "PENDING", reason="Priority"),
            ],
            "running",
            "its baseline job 16 waits: Priority; its replicas go on",
        ),
        (RUNNING, [job(12, "NODE_FAIL"), job(16)], "running", ""),
        (
            RUNNING,
            [job(12), job(16, "PENDING", reason="Resources")],
            "running",
            "baseline job 16, which is to take the place of 12, waits: Resources",
        ),
        (
            RUNNING,
            [job(12), job(16, "REQUEUE_HOLD", reason="JobHeldAdmin")],
            "running",
            "baseline job 16, which is to take the place of 12, waits: JobHeldAdmin",
        ),
        (RUNNING, [job(12), job(16, "CANCELLED")], "running", ""),
        (replace(RUNNING, state="finished"), [], "finished", ""),
        (replace(RUNNING, state="failed", message="exit code 1"), [job(12)], "failed", "exit code 1"),
        (RUNNING, None, "running", "slurmctld does not answer, so this is what the run itself last wrote"),
        (replace(RUNNING, state="finished"), None, "finished", ""),
    ],
)
def test_the_state_is_what_run_and_queue_say_together(status, queue, state, note):
    run = overview(SPEC, status, RECORDS, [], queue)
    assert (run.state, run.note) == (state, note)


def test_in_restart_mode_nobody_waits_for_a_loader():
    assert overview(replace(SPEC, mode="restart"), RunStatus("starting"), RECORDS, [], [job(12)]).note == ""


@pytest.mark.parametrize("state", ["finished", "failed", "cancelled", "running"])
def test_a_run_that_is_over_has_no_nodes_any_more(state):
    """Whatever its coordinator wrote last, while its workers went one after the other."""
    run = overview(SPEC, replace(RUNNING, state=state), RECORDS, [], [])
    assert run.is_over
    assert run.status == replace(RUNNING, state=state, nodes=(), world_size=0)


def test_a_run_whose_submission_was_never_recorded_is_found_by_its_comment():
    assert overview(SPEC, None, [], [], [job(12)]).state == "starting"
    assert overview(SPEC, None, [], [], []).note == "its baseline job is no longer in the queue"


def test_who_preempted_comes_with_the_departure_or_later():
    by = {"job_id": 20, "user": "cv1", "account": "cv", "qos": "high"}
    events = [
        Event("1", "left", {"reason": "failed", "job_id": 13, "node": "n3"}),
        Event("2", "left", {"reason": "preempted", "job_id": 14, "node": "n4"}),
        Event("3", "left", {"reason": "preempted", "job_id": 15, "node": "n5", "preempted_by": by}),
        Event("4", "preempted_by", {"job_id": 14, "node": "n4", "preempted_by": by}),
        Event("5", "left", {"reason": "preempted", "job_id": 16, "node": "n6", "preempted_by": None}),
    ]
    assert overview(SPEC, RUNNING, RECORDS, events, []).preemptions == (
        Preemption("2", 14, "n4", by),
        Preemption("3", 15, "n5", by),
        Preemption("5", 16, "n6", {}),
    )


def test_a_replica_that_a_person_cancelled_is_not_shown_as_preempted():
    events = [
        Event("1", "left", {"reason": "preempted", "job_id": 14, "node": "n4"}),
        Event("2", "left", {"reason": "preempted", "job_id": 15, "node": "n5"}),
        Event("3", "not_preempted", {"job_id": 14, "why": "was cancelled (scancel)"}),
    ]
    assert overview(SPEC, RUNNING, RECORDS, events, []).preemptions == (Preemption("2", 15, "n5", {}),)

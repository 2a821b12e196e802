"""Why a run is not larger."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from hpctools.elastic.folder import Event, RunStatus
from hpctools.submit.larger import explained, why_not_larger
from hpctools.submit.overview import JobView

AT = datetime(2026, 2, 3, 10, tzinfo=timezone.utc).timestamp()
"""When all that happens here does, Unix seconds."""
RUNNING = RunStatus("running", nodes=("n1", "n2"), min_nodes=2, max_nodes=5)


def replica(
    job_id: int, state: str = "PENDING", reason: str = "Priority", nodes: tuple[str, ...] = ()
) -> JobView:
    return JobView(job_id, "replica", state, reason, nodes)


def event(name: str, **detail: object) -> Event:
    return Event("2026-02-03T10:00:00.000+00:00", name, detail)


def test_jobs_that_wait_for_the_same_reason_are_one_clause():
    jobs = [
        JobView(1, "baseline", "RUNNING", "None", ("n1", "n2")),
        replica(2),
        replica(3),
        replica(4, reason="Licenses"),
        replica(5, "RESV_DEL_HOLD", "Reservation course was deleted"),
    ]
    assert why_not_larger(RUNNING, jobs, []) == (
        "2 replica jobs wait: more urgent jobs come first (Priority)",
        "replica job 4 waits: no license is free (Licenses)",
        "replica job 5 waits: Reservation course was deleted",
    )


@pytest.mark.parametrize(
    ("reason", "meaning"),
    [
        ("None", "the scheduler looks at it next"),
        (
            "ReqNodeNotAvail, UnavailableNodes:n[1-3]",
            "a node that it asks for is down, drained or reserved (ReqNodeNotAvail)",
        ),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            "nodes that it could have are down, drained, or kept for more urgent jobs",
        ),
        (  # from 24.11 on, where nodes of the partition are being rebooted
            "Nodes required for job are DOWN, DRAINED, REBOOTING or reserved for jobs in higher priority "
            "partitions",
            "nodes that it could have are down, drained, or kept for more urgent jobs",
        ),
        ("QOSMaxNodePerUserLimit", "a limit of its account or QoS (QOSMaxNodePerUserLimit)"),
        ("AssocGrpGRESMinutes", "a limit of its account or QoS (AssocGrpGRESMinutes)"),
        ("FrontEndDown", "FrontEndDown"),
    ],
)
def test_reasons_in_words(reason: str, meaning: str):
    assert explained(reason) == meaning


def test_a_replica_that_has_begun_and_does_not_train_yet():
    assert why_not_larger(RUNNING, [replica(2, "RUNNING", "None", ("n3",))], []) == (
        "replica job 2 has begun on n3 and does not train yet",
    )
    assert "n2" not in str(why_not_larger(RUNNING, [replica(2, "RUNNING", "None", ("n2",))], []))


def test_nodes_of_which_no_allowed_size_is_made_are_not_on_their_way():
    sizes = (2, 4, 8)
    assert why_not_larger(RUNNING, [replica(2, "RUNNING", "None", ("n3",)), replica(3)], [], sizes) == (
        "replica job 3 waits: more urgent jobs come first (Priority)",
        "the next size that is allowed is 4 nodes; until then n3 will not train",
    )
    enough = [replica(job_id, "RUNNING", "None", (f"n{job_id}",)) for job_id in (3, 4)]
    assert why_not_larger(RUNNING, enough, [], sizes) == (
        "replica job 3 has begun on n3 and does not train yet",
        "replica job 4 has begun on n4 and does not train yet",
    )


def test_its_own_decision_counts_until_the_next_resize():
    said = event("decision", grow=False, why="growing would not pay", numbers={"gain": 0.51234, "cost_s": 4})
    jobs = [replica(2, "RUNNING", "None", ("n2",))]
    assert why_not_larger(RUNNING, jobs, [said]) == ("growing would not pay (gain 0.512, cost_s 4)",)
    assert why_not_larger(RUNNING, jobs, [event("decision", grow=False, why="old"), said])[0].startswith(
        "growing"
    )
    nobody = event("decision", grow=False, world=2, possible=2, why="nobody is there to grow by")
    assert why_not_larger(RUNNING, [replica(2)], [nobody]) == (
        "replica job 2 waits: more urgent jobs come first (Priority)",
    )
    for later in (event("resize"), event("takeover"), event("decision", grow=True, why="it pays")):
        assert "pay" not in str(why_not_larger(RUNNING, jobs, [said, later]))


def test_nodes_that_are_left_out_are_named_once():
    events = [event("action", action="ReplaceNode", node="n9", exclude=True)] * 2
    events.append(event("action", action="ReplaceNode", node="n8", exclude=False))
    assert why_not_larger(RUNNING, [replica(2)], events)[-1] == "nodes that failed are left out: n9"


def test_nodes_with_a_notice_are_named_while_it_stands():
    events = [
        event("action", action="Depart", node="n7", seconds=120.0, avoid_s=420.0),
        event("action", action="Prepare", node="n6", seconds=None, avoid_s=600.0),
        event("action", action="Depart", node="n5", seconds=None, avoid_s=0.0),  # drained: Slurm's own matter
    ]
    left_out = "nodes that will be taken away are left out for a while: "
    for seconds, expected in ((10.0, f"{left_out}n7 n6"), (500.0, f"{left_out}n6")):
        assert why_not_larger(RUNNING, [replica(2)], events, now=AT + seconds)[-1] == expected
    (only,) = why_not_larger(RUNNING, [replica(2)], events, now=AT + 601.0)
    assert only.startswith("replica job 2 waits")


BASELINE = [JobView(1, "baseline", "RUNNING", "None", ("n1", "n2"))]
NOT_YET = "its next replica job is not in the queue yet: "


@pytest.mark.parametrize(
    "message",
    ["cannot submit a replica job: slurmctld is away", "no more replicas: 3 of them failed with: x"],
)
def test_without_a_better_reason_what_was_said_of_submitting_until_it_was_done(message: str):
    """Or until another coordinator is in office, which tries anew; other warnings are of other things."""
    told, other = event("warning", message=message), event("warning", message="replica job 9 is given back")
    assert why_not_larger(RUNNING, BASELINE, [told, event("submitted", role="baseline"), other]) == (message,)
    for later in (event("submitted", role="replica", job_id=7), event("takeover", term=2)):
        (why,) = why_not_larger(RUNNING, BASELINE, [told, later, other])
        assert why.startswith(NOT_YET)
    assert why_not_larger(RUNNING, [], []) == ("the queue does not show its replica jobs",)


def test_in_the_last_minute_of_its_time_none_is_about_to_be_submitted():
    for end, expected in ((AT + 59, "in the last minute of its time"), (AT + 61, NOT_YET), (None, NOT_YET)):
        (why,) = why_not_larger(RUNNING, BASELINE, [], now=AT, end=end)
        assert why.startswith(expected)


def test_of_a_run_that_starts_again_what_its_jobs_tell():
    starting = RunStatus("starting", generation=4, min_nodes=2, max_nodes=5)
    refused = event("decision", grow=False, why="growing would not pay")
    jobs = [replica(2), replica(3, "RUNNING", "None", ("n3",))]
    assert why_not_larger(starting, jobs, [refused]) == (
        "replica job 2 waits: more urgent jobs come first (Priority)",
        "replica job 3 has begun on n3 and does not train yet",
    )
    assert why_not_larger(starting, BASELINE, []) == ()


def test_a_run_that_waits_below_its_least_size_is_told_of_too():
    waits = RunStatus("running", generation=4, min_nodes=2, max_nodes=5, message="waits for workers")
    assert why_not_larger(waits, [replica(2)], []) == (
        "replica job 2 waits: more urgent jobs come first (Priority)",
    )


def test_a_full_run_and_one_that_does_not_run():
    full = RunStatus("running", nodes=("a", "b"), min_nodes=1, max_nodes=2)
    assert why_not_larger(full, [replica(2)], []) == ("2 nodes are the most that it may have",)
    assert why_not_larger(RunStatus("failed", min_nodes=1, max_nodes=2), [replica(2)], []) == ()


REFUSED = {"grow": False, "why": "a restart was a short time ago", "possible": 3}


def test_a_decision_counts_although_the_change_before_was_undone_at_once() -> None:
    """Both are told together then, after it, the first one without a pause."""
    undone, change = event("resize", to=3), event("resize", to=2, pause_s=0.5)
    decision = event("decision", world=2, **REFUSED)
    assert why_not_larger(RUNNING, [], [decision, undone, change]) == ("a restart was a short time ago",)
    lasted = [decision, change, change]
    assert why_not_larger(RUNNING, [], lasted) == ("the queue does not show its replica jobs",)


def test_a_decision_at_the_present_size_counts_although_the_change_was_told_later() -> None:
    """A resize is told four steps after it was made; slow steps leave time for a verdict before."""
    change = event("resize", **{"from": 3, "to": 2, "pause_s": 0.5})
    began = [replica(2, "RUNNING", nodes=("n3",))]
    assert why_not_larger(RUNNING, began, [event("decision", world=2, **REFUSED), change]) == (
        "replica job 2 has begun on n3 and does not train yet",
        "a restart was a short time ago",
    )
    earlier = event("decision", world=4, **{**REFUSED, "possible": 5})
    for events in ([earlier, change], [event("decision", world=2, **REFUSED), change, change]):
        assert len(why_not_larger(RUNNING, began, events)) == 1


def test_workers_are_counted_where_jobs_share_nodes_or_not_all_workers_train() -> None:
    jobs = [replica(number, "RUNNING", nodes=("n1",)) for number in (2, 3)]
    whole = RunStatus("running", nodes=("n1",), world_size=3, min_nodes=1, max_nodes=3)
    assert why_not_larger(whole, jobs, []) == ("3 nodes are the most that it may have",)
    part = RunStatus("running", nodes=("n1", "n2", "n3"), world_size=8, min_nodes=1, max_nodes=3)
    decision = event("decision", world=8, **{**REFUSED, "possible": 12})
    assert why_not_larger(part, [], [decision], workers_per_node=4) == ("a restart was a short time ago",)

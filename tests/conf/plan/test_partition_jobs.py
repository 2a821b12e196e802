"""Which jobs a changed partition would disturb, and which have a way out."""

from dataclasses import replace
from typing import Any

import pytest

from hpctools.conf.plan import Need, Plan, make_plan
from hpctools.conf.plan.demand import Demand
from hpctools.slurm.types import Job
from tests.conf.plan.stage import EARLY, FOLDER, LATE, bundle, job, live

LATEST = (26, 5, 5)
ON_A_NODE = "on a node, and none has more than 4 then"
SHARED = """
partitions:
  - {name: quick, node_groups: [reserved], departments: all, max_time: 12:00:00}

tiers:
"""
WITH_QUICK = ("\ntiers:\n", SHARED)
FEWER = ("count: 4\n    capacity: reserved", "count: 2\n    capacity: reserved")
LESS = (
    "    capacity: reserved\n    gpus: {type: a100, count: 8}",
    "    capacity: reserved\n    gpus: {type: a100, count: 4}",
)


def plan_of(
    there: Any, wanted: Any, *jobs: Job, release: Any = EARLY, demands: dict[int, Demand] | None = None
) -> Plan:
    found = live(bundle(*there, release=release), *jobs, release=release)
    found = replace(found, demands=demands or {})
    return make_plan(bundle(*wanted, release=release), found, folder=FOLDER)


def named(plan: Plan) -> list[tuple[int, bool, str]]:
    return [(row.id, row.waits, row.why) for row in plan.jobs]


@pytest.mark.parametrize(
    ("release", "kept"),
    [(EARLY, False), (LATE, False), ((25, 5, 9), False), ((25, 11, 0), True), (LATEST, True)],
    ids=["22.05", "24.11", "25.05", "25.11", "26.05"],
)
def test_jobs_of_a_partition_that_goes(release: Any, kept: bool) -> None:
    """All its jobs end; those that named others too, until 25.05 (tried, but for 25.05 and 25.11)."""
    jobs = (
        job(1, "nlp1", "quick", nodes=("reserved-1",)),
        job(2, "nlp1", "quick"),
        job(3, "nlp1", "nlp,quick"),
        job(4, "nlp1", "nlp", nodes=("reserved-1",)),
    )
    plan = plan_of([WITH_QUICK], [], *jobs, release=release)
    why = "its partition quick goes, and Slurm cancels it with it"
    ended = [1, 2] if kept else [1, 2, 3]
    assert named(plan) == [(number, False, why) for number in ended]
    (gone,) = [change for change in plan.changes if change.area == "partition"]
    assert (gone.subject, gone.needs, gone.jobs, gone.drains) == (
        "quick",
        Need.DRAIN,
        tuple(ended),
        ("reserved-1",),
    )


def test_a_job_that_named_other_partitions_only_waits() -> None:
    shorter = ("max_time: 12:00:00", "max_time: 01:00:00")
    jobs = (
        job(1, "nlp1", "nlp,quick", account="nlp", time_limit=120),
        job(2, "nlp1", "quick", account="nlp", time_limit=120),
    )
    why = "it asks for 02:00:00, and at most 01:00:00 are allowed then"
    plan = plan_of([WITH_QUICK], [WITH_QUICK, shorter], *jobs)
    assert named(plan) == [(1, True, f"only in nlp then; in quick {why}"), (2, False, why)]
    assert plan.changes[0].effect.endswith(
        "; 1 pending job would not start any more; 1 pending job would wait longer"
    )
    long = ("max_time: 2-00:00:00\n      default_time: 04:00:00", "max_time: 01:00:00")
    both = [WITH_QUICK, shorter, long]
    assert [row[:2] for row in named(plan_of([WITH_QUICK], both, *jobs))] == [(1, False), (2, False)]


@pytest.mark.parametrize(
    ("edit", "demand", "why"),
    [
        (FEWER, Demand({"node": 5}, {}, 5), "it asks for 5 nodes, of which there are 4 then"),
        (FEWER, Demand({"node": 4}, {}, 4), ""),
        (FEWER, Demand({"gres/gpu": 25}), "it asks for 25 GPUs, of which there are 24 then"),
        (FEWER, Demand({"gres/gpu:a100": 17}), "it asks for 17 gres/gpu:a100, of which there are 16 then"),
        (FEWER, Demand({"gres/gpu": 41}), ""),  # it never could
        (LESS, Demand({"gres/gpu": 8}, {"gres/gpu": 8}), f"it asks for 8 GPUs {ON_A_NODE}"),
        (LESS, Demand({"gres/gpu": 8, "node": 2}, {"gres/gpu": 4}, 2), ""),
        (LESS, Demand({"gres/gpu": 25}), "it asks for 25 GPUs, of which there are 24 then"),
    ],
)  # fmt: skip
def test_a_partition_that_becomes_too_small(edit: tuple[str, str], demand: Demand, why: str) -> None:
    plan = plan_of([], [edit], job(1, "nlp1", "dl"), demands={1: demand})
    assert named(plan) == ([(1, False, why)] if why else [])
    assert {number for change in plan.changes for number in change.jobs} == ({1} if why else set())


def test_a_most_of_nodes_for_each_job() -> None:
    few = (
        "partition: {node_groups: [reserved, shared], max_time: 1-00:00:00}",
        "partition: {node_groups: [reserved, shared], max_time: 1-00:00:00, parameters: {MaxNodes: '2'}}",
    )
    demands = {1: Demand({"node": 3}, {}, 3), 2: Demand({"node": 2}, {}, 2), 3: Demand()}
    jobs = tuple(job(number, "dl1", "dl") for number in demands)
    why = "it asks for 3 nodes, and at most 2 are allowed then"
    assert named(plan_of([], [few], *jobs, demands=demands)) == [(1, False, why)]
    assert named(plan_of([few], [few], *jobs, demands=demands)) == []
    assert named(plan_of([few], [], *jobs, demands=demands)) == []


def test_the_worst_that_happens_to_a_job_is_told() -> None:
    """A limit makes it wait, and its partition goes."""
    less = ("limits: {gpus: 48, cpus: 640, gpus", "limits: {gpus: 1, cpus: 640, gpus")
    waiting = job(1, "nlp1", "quick", account="nlp-lab-a")
    runs = job(2, "nlp1", "nlp", account="nlp-lab-a", nodes=("reserved-1",))
    demands = {1: Demand({"gres/gpu": 1}), 2: Demand({"gres/gpu": 1})}
    plan = plan_of([WITH_QUICK], [less], waiting, runs, demands=demands)
    assert named(plan) == [(1, False, "its partition quick goes, and Slurm cancels it with it")]
    plan = plan_of([WITH_QUICK], [WITH_QUICK, less], waiting, runs, demands=demands)
    assert named(plan) == [(1, True, "account nlp may have 1 GPU then, with 1 GPU in use")]


MEMORY = (
    "    capacity: reserved\n",
    "    capacity: reserved\n    parameters: {RealMemory: '2000'}\n",
)


@pytest.mark.parametrize(("release", "named_ids"), [(EARLY, (1,)), (LATE, (1, 3, 4, 6))])
def test_nodes_with_less_memory(release: Any, named_ids: tuple[int, ...]) -> None:
    """What a job states it wants on each of its nodes; by CPU it is more, and from 24.11 on that counts."""
    demands = {
        1: Demand({"cpu": 2, "mem": 4002, "node": 2}, {}, 2, memory=2001),
        2: Demand({"cpu": 2, "mem": 4000, "node": 2}, {}, 2, memory=2000),
        3: Demand({"cpu": 4, "mem": 2400, "node": 1}, {}, 1, memory=600, per_cpu=600),
        4: Demand({"cpu": 4, "mem": 8400, "node": 4}, {}, 4, per_gpu=2100),
        6: Demand({"cpu": 1, "mem": 1001, "node": 1}, {}, 1, memory=1001, per_cpu=1001, cpus=1),  # a core
        7: Demand({"cpu": 1, "mem": 1000, "node": 1}, {}, 1, memory=1000, per_cpu=1000),
        5: Demand({"cpu": 1, "mem": 2**40, "node": 1}, {}, 1, memory=2**40),  # it never could
    }
    there = [("node_groups: [reserved, shared], max_time: 1-00", "node_groups: [reserved], max_time: 1-00")]
    plan = plan_of(
        there,
        [*there, MEMORY],
        *(job(number, "dl1", "dl") for number in demands),
        release=release,
        demands=demands,
    )
    why = "it asks for {} MiB on a node, and none has more than 2000 then"
    told = [
        (1, False, why.format(2001)),
        (3, False, f"{why.format(2400)} (if it says on how many nodes)"),
        (4, False, "it asks for 8400 MiB, of which there are 8000 then"),
        (6, False, why.format(2002)),
    ]
    assert named(plan) == [row for row in told if row[0] in named_ids]
    (memory,) = [change for change in plan.changes if change.key == "RealMemory"]
    assert memory.jobs == named_ids


def test_a_most_of_memory_on_a_node() -> None:
    less, more = dl_with("MaxMemPerNode: '500'"), dl_with("MaxMemPerNode: '600'")
    demands = {number: Demand({"mem": number}, memory=number) for number in (500, 501, 601)}
    jobs = tuple(job(number, "dl1", "dl") for number in demands)
    why = "it asks for {} MiB on a node, and at most {} are allowed then"
    assert named(plan_of([], [less], *jobs, demands=demands)) == [
        (501, False, why.format(501, 500)),
        (601, False, why.format(601, 500)),
    ]
    assert named(plan_of([more], [less], *jobs, demands=demands)) == [(501, False, why.format(501, 500))]
    assert named(plan_of([less], [more], *jobs, demands=demands)) == []
    assert named(plan_of([less], [], *jobs, demands=demands)) == []


DL = "partition: {node_groups: [reserved, shared], max_time: 1-00:00:00"


def dl_with(parameters: str) -> tuple[str, str]:
    return (DL, f"{DL}, parameters: {{{parameters}}}")


def test_a_least_of_nodes_for_each_job() -> None:
    """What counts is the least that it asks for (22.05.8: one of -N1-2 stays pending under MinNodes=2)."""
    two, three = dl_with("MinNodes: '2'"), dl_with("MinNodes: '3'")
    demands = {1: Demand({"node": 1}, {}, 2), 2: Demand({"node": 2}, {}, 2), 3: Demand()}
    jobs = tuple(job(number, "dl1", "dl") for number in demands)
    why = "it asks for {}, and {} are the fewest then"
    few = [(number, False, why.format("1 node", 2)) for number in (1, 3)]
    assert named(plan_of([], [two], *jobs, demands=demands)) == few
    assert named(plan_of([two], [three], *jobs, demands=demands)) == [(2, False, why.format("2 nodes", 3))]
    assert named(plan_of([three], [two], *jobs, demands=demands)) == []


def test_groups_that_may_use_a_partition() -> None:
    """Of people who are not known here nothing is said; root may use every partition."""
    old, new = dl_with("AllowGroups: 'Staff,guests'"), dl_with("AllowGroups: Staff")
    groups = {
        "dl1": frozenset({"dl1", "guests"}),
        "dl2": frozenset({"dl2", "Staff"}),
        "root": frozenset({"r"}),
    }
    jobs = tuple(job(number, user, "dl") for number, user in enumerate(("dl1", "dl2", "root", "dl3"), 1))

    def told(there: tuple[tuple[str, str], ...], wanted: tuple[tuple[str, str], ...]) -> list[Any]:
        found = replace(live(bundle(*there), *jobs), groups=groups)
        return named(make_plan(bundle(*wanted), found, folder=FOLDER))

    why = "dl1 is in no group that may use it then"
    assert told((), (new,)) == told((old,), (new,)) == [(1, False, why)]
    assert told((), (old,)) == told((new,), (old,)) == told((new,), ()) == []
    assert told((dl_with("AllowGroups: others"),), (new,)) == []  # neither could before

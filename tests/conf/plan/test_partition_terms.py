"""Jobs under other defaults and other limits on memory of their partition, as real daemons treated each.

Rows are what squeue of 22.05.8 and 24.11.5 printed of jobs that waited, fates what became of them once nodes
were free (docs/decisions/0104); nodes of 96 CPUs on 48 cores, 1120665 MiB and 8 GPUs.
"""

from dataclasses import replace
from typing import Any

import pytest

from hpctools.conf.plan import Plan, make_plan, settled_plan
from hpctools.conf.plan.demand import read_demands
from tests.conf.plan.stage import EARLY, FOLDER, LATE, bundle, job, live

LATEST = (26, 5, 5)
NODES = (
    "      node_groups: [reserved, shared, spot]\n      max_time: 3-00",
    "      node_groups: [reserved]\n      max_time: 3-00",
)
TERMS = "      memory_mib_per_cpu: 3800\n"
LIMITS = "limits: {gpus: 48, gpus_per_user: 32}"
HELD = "JobHeldUser"
NOT_STATED = " (if it states no memory itself)"
PER_GPU = "cpu=1,mem=800M,node=1,gres/gpu=2"


def row(
    tres: str,
    memory: str,
    *,
    gpu_cpus: str = "N/A",
    gpu_memory: str = "N/A",
    nodes: int = 1,
    threads: str = "*",
    cpus: str = "1|0|1",
    whole: str = "OK",
) -> str:
    """What squeue prints of a job: what it asks for, MinMemory, what comes with a GPU, NumNodes, Threads,
    the CPUs of a task, tasks and CPUs of a node, and the column of whole nodes.
    """
    return f"{tres}|{gpu_cpus}|{gpu_memory}|{memory}|N/A|{nodes}|10:00|{threads}|{cpus}|{whole}"


def terms(text: str, before: str = TERMS) -> tuple[str, str]:
    """Other terms of the partition cv."""
    return before, f"{before}      parameters: {{{text}}}\n"


def limit(text: str) -> tuple[str, str]:
    """A limit of the department cv."""
    return LIMITS, LIMITS.replace("}", f", {text}}}")


def fates(
    shown: str,
    *wanted: tuple[str, str],
    there: tuple[tuple[str, str], ...] = (),
    reason: str = "Resources",
    release: Any = LATE,
    partition: str = "cv",
) -> list[str]:
    """Why a job that squeue shows so, its id left out, would not start any more; [] when it would."""
    return [
        each.why
        for each in plan_of(
            shown, *wanted, there=there, reason=reason, release=release, partition=partition
        ).jobs
    ]


def plan_of(
    shown: str, *wanted: tuple[str, str], there: Any, reason: str, release: Any, partition: str = "cv"
) -> Plan:
    waiting = job(1, "cv1", partition, account="cv-lab-a", reason=reason)
    found = live(bundle(NODES, *there, release=release), waiting, release=release)
    found = replace(found, demands=read_demands(f"1|{shown}|", release))
    return make_plan(bundle(NODES, *wanted, release=release), found, folder=FOLDER)


# What was asked for, the row, and what counts against MaxMemPerNode.
ON_A_NODE = [
    ("-n8 --mem-per-cpu=100 [-N1]", row("cpu=8,mem=800M,node=1", "100M"), 800),
    ("-n1 -c8 --mem-per-cpu=100", row("cpu=8,mem=800M,node=1", "100M", cpus="8|0|8"), 800),
    ("--exclusive --mem-per-cpu=100 --hint=x", row("cpu=2,mem=200M,node=1", "100M", whole="NO"), 9600),
    ("-n1 --mem-per-cpu=100", row("cpu=1,mem=100M,node=1", "100M"), 100),
    ("--gpus=1 --mem-per-cpu=100", row("cpu=1,mem=100M,node=1,gres/gpu=1", "100M", gpu_cpus="gpu:12"), 100),
    ("--ntasks-per-node=6 -N1 --mem-per-cpu=100", row("cpu=6,mem=600M,node=1", "100M", cpus="1|6|6"), 600),
    ("-N2 -n8 --mem-per-cpu=100", row("cpu=8,mem=800M,node=2", "100M", nodes=2), 400),
    ("-N1-2 -n8 --mem-per-cpu=100", row("cpu=8,mem=800M,node=1", "100M", nodes=2), 400),
    ("--mem=0", row("cpu=1,mem=1120665M,node=1", "0"), 1120665),
    ("--gpus=2 --mem-per-gpu=400", row(PER_GPU, "400M", gpu_cpus="gpu:12", gpu_memory="gres/gpu:400"), 3800),
]  # fmt: skip
UNCERTAIN = {
    "-n8 --mem-per-cpu=100 [-N1]",
    "-N2 -n8 --mem-per-cpu=100",
    "-N1-2 -n8 --mem-per-cpu=100",
}


@pytest.mark.parametrize(
    ("shown", "counts", "sure"),
    [(shown, counts, said not in UNCERTAIN) for said, shown, counts in ON_A_NODE],
    ids=[said for said, *_ in ON_A_NODE],
)
def test_memory_of_a_node_is_what_slurmctld_reckons(shown: str, counts: int, sure: bool) -> None:
    """Not what the job gets: 12 CPUs of a GPU bring 1200 MiB, and the partition's default of a CPU counts."""
    assert fates(shown, terms(f"MaxMemPerNode: '{counts}'")) == []
    doubt = "" if sure else " (if it says on how many nodes)"
    told = f"it asks for {counts} MiB on a node, and at most {counts - 1} are allowed then{doubt}"
    assert fates(shown, terms(f"MaxMemPerNode: '{counts - 1}'")) == [told]
    # One that did not fit before is not disturbed.
    assert fates(shown, terms("MaxMemPerNode: '50'"), there=(terms("MaxMemPerNode: '99'"),)) == []


@pytest.mark.parametrize(("kind", "memory"), [("CPU", 9600), ("Node", 100)])
def test_how_memory_of_whole_nodes_is_asked_for_is_found_out(kind: str, memory: int) -> None:
    """squeue shows --exclusive --mem-per-cpu=100 and --mem=100 alike."""
    text = "1|cpu=1,mem=100M,node=1|N/A|N/A|100M|N/A|1|10:00|*|1|0|1|NO|"
    waiting = job(1, "cv1", "cv", account="cv-lab-a")
    found = replace(live(bundle(NODES), waiting), demands=read_demands(text, EARLY))
    asked = f"JobId=1 JobName=x MinMemory{kind}=100M\n"

    def named(most: int) -> list[int]:
        wanted = bundle(NODES, terms(f"MaxMemPerNode: '{most}'"))
        return [each.id for each in settled_plan(wanted, found, folder=FOLDER, ask=lambda _: asked).jobs]

    assert (named(memory), named(memory - 1)) == ([], [1])


# What was asked for, the row, the CPUs that it gets under MaxMemPerCPU=1000, whole cores of two.
MORE_CPUS = [
    ("-n1 --mem-per-cpu=4000", row("cpu=1,mem=4000M,node=1", "4000M"), 4),
    ("-n1 --mem-per-cpu=7000", row("cpu=1,mem=7000M,node=1", "7000M"), 8),
    ("-n1 --mem=8000", row("cpu=1,mem=8000M,node=1", "8000M"), 8),
    ("-N1 -n2 --mem=40000", row("cpu=2,mem=40000M,node=1", "40000M"), 40),
    ("-N2 -n2 --mem-per-cpu=3000", row("cpu=2,mem=6000M,node=2", "3000M", nodes=2), 6),
    ("--gpus=1 --mem-per-cpu=3000", row("cpu=1,mem=3000M,node=1,gres/gpu=1", "3000M", gpu_cpus="gpu:12"), 12),
    ("-n1 --mem-per-cpu=900", row("cpu=1,mem=900M,node=1", "900M"), 2),
]  # fmt: skip


@pytest.mark.parametrize(
    ("shown", "cpus"), [each[1:] for each in MORE_CPUS], ids=[each[0] for each in MORE_CPUS]
)
def test_more_cpus_for_memory_come_under_limits(shown: str, cpus: int) -> None:
    most = terms("MaxMemPerCPU: '1000'")
    assert fates(shown, most, limit(f"cpus_per_job: {cpus}")) == []
    told = f"it asks for {cpus} CPUs, and a job of account cv may have 1 CPU then"
    assert fates(shown, most, limit("cpus_per_job: 1"), there=(limit("cpus_per_job: 30"),)) == [told]


@pytest.mark.parametrize(
    ("shown", "cpus"),
    [
        (row("cpu=30,mem=120000M,node=1", "4000M", cpus="30|0|30"), 120),  # -c30 --mem-per-cpu=4000
        (row("cpu=1,mem=97000M,node=1", "97000M"), 97),  # --mem=97000
        (row("cpu=1,mem=120000M,node=1", "120000M", whole="NO"), 120),  # --exclusive --mem=120000
    ],
)
def test_more_cpus_for_memory_than_a_node_has(shown: str, cpus: int) -> None:
    """BadConstraints on all releases, though other nodes have more: no task is on two of them."""
    told = f"it asks for {cpus} CPUs on a node, and none has more than 96 then"
    assert fates(shown, terms("MaxMemPerCPU: '1000'")) == [told]
    assert fates(shown, terms("MaxMemPerCPU: '2000'")) == []


# What was asked for, the row, and the MiB that it gets when the default is 100000 MiB a CPU.
DEFAULT = [
    ("-n1", row("cpu=1,mem=3800M,node=1", "3800M"), 200000),
    ("-n1 --hint=nomultithread", row("cpu=1,mem=3800M,node=1", "3800M", threads="1"), 100000),
    ("-n2 -N2", row("cpu=2,mem=7600M,node=2", "3800M", nodes=2), 400000),
]


@pytest.mark.parametrize(
    ("shown", "memory"), [each[1:] for each in DEFAULT], ids=[each[0] for each in DEFAULT]
)
def test_jobs_that_may_state_no_memory_get_another_default(shown: str, memory: int) -> None:
    """No command tells whether a job states what is the default."""
    more = (TERMS, TERMS.replace("3800", "100000"))
    assert fates(shown, more, limit(f"memory_mib: {memory}")) == []
    told = f"it asks for {memory} MiB, and account cv may have {memory - 1} MiB then{NOT_STATED}"
    assert fates(shown, more, limit(f"memory_mib: {memory - 1}"), there=(limit("memory_mib: 900000"),)) == [
        told
    ]
    stated = shown.replace("3800M", "3700M")
    assert fates(stated, more, limit("memory_mib: 9000"), there=(limit("memory_mib: 900000"),)) == []


@pytest.mark.parametrize("release", [EARLY, LATE, LATEST], ids=["22.05", "24.11", "26.05"])
@pytest.mark.parametrize(
    ("shown", "told"),
    [
        (  # -n96 -N1; of four nodes
            row("cpu=96,mem=364800M,node=1", "3800M"),
            "it asks for 9600000 MiB, of which there are 4482660 then",
        ),
        (  # --gpus=1
            row("cpu=1,mem=3800M,node=1,gres/gpu=1", "3800M", gpu_cpus="gpu:12"),
            "it asks for 1200000 MiB on a node, and none has more than 1120665 then",
        ),
    ],
)
def test_a_default_that_no_node_has(shown: str, told: str, release: Any) -> None:
    """BadConstraints, on 22.05.8 as well, which gives out more than nodes have only when these change."""
    more = (TERMS, TERMS.replace("3800", "100000"))
    assert fates(shown, more, release=release) == [f"{told} (if it states no memory itself)"]
    assert fates(shown.replace("3800M", "3700M"), more, release=release) == []


def test_other_kinds_of_defaults() -> None:
    """Of each node, with each GPU, and none: then a job gets all memory of its nodes."""
    one = row("cpu=1,mem=3800M,node=1", "3800M")
    gpu = row("cpu=1,mem=3800M,node=1,gres/gpu=2", "3800M", gpu_cpus="gpu:12")
    tight, loose = limit("memory_mib: 100"), (limit("memory_mib: 2000000"),)
    whose = ", and account cv may have 100 MiB then (if it states no memory itself)"
    for shown, text, memory in (
        (one, "DefMemPerNode: '5000'", 5000),
        (gpu, "DefMemPerGPU: '5000'", 10000),
        (one, "DefMemPerGPU: '5000'", 1120665),
    ):
        assert fates(shown, terms(text), tight, there=loose) == [f"it asks for {memory} MiB{whose}"]
        assert fates(shown, terms(text), limit(f"memory_mib: {memory}"), there=loose) == []


def test_memory_that_a_partition_gives_with_each_gpu() -> None:
    """squeue tells that the partition gives it, so that nothing is in doubt."""
    shown = row("cpu=1,mem=5000M,node=1,gres/gpu=1", "5000M", gpu_cpus="gpu:12", gpu_memory="gpu:5000")
    there = (terms("DefMemPerGPU: '5000'"),)
    told = "it asks for 4000000 MiB on a node, and none has more than 1120665 then"
    assert fates(shown, terms("DefMemPerGPU: '4000000'"), there=there) == [told]
    stated = shown.replace("gpu:5000", "gres/gpu:5000")
    assert fates(stated, terms("DefMemPerGPU: '4000000'"), there=there) == []


def gpus(cpus_per_gpu: str, cpus_per_task: int = 1) -> str:
    """Two GPUs, without a word on memory."""
    asked = f"cpu={cpus_per_task},mem={3800 * cpus_per_task}M,node=1,gres/gpu=2"
    return row(asked, "3800M", gpu_cpus=cpus_per_gpu, cpus=f"{cpus_per_task}|0|1")


FEW = limit("cpus_per_job: 20")


def test_cpus_of_held_jobs_that_slurmctld_has_not_worked_out() -> None:
    """Once it looks they get 24; with -c1 they do not, and look the same before."""
    told = "it asks for 24 CPUs, and a job of account cv may have 20 CPUs then"
    doubt = " (if it states no CPUs itself)"
    assert fates(gpus("N/A"), FEW, reason=HELD) == [told + doubt]
    assert fates(gpus("N/A"), FEW, reason="Dependency") == [told + doubt]
    assert fates(gpus("N/A"), FEW) == []  # looked at: it states them
    assert fates(gpus("N/A", 2), FEW, reason=HELD) == []
    assert fates(gpus("gres/gpu:2"), FEW, reason=HELD) == []
    assert fates(gpus("gpu:12"), FEW) == [told]
    assert fates(gpus("N/A"), limit("cpus_per_job: 24"), reason=HELD) == []


def test_other_cpus_for_each_gpu() -> None:
    more = ("cpus_per_gpu: 12 ", "cpus_per_gpu: 24 ")
    there = (limit("cpus_per_job: 30"),)
    told = "it asks for 48 CPUs, and a job of account cv may have 30 CPUs then"
    assert fates(gpus("gpu:12"), more, *there, there=there) == [told]
    assert fates(gpus("gres/gpu:12"), more, *there, there=there) == []
    assert fates(gpus("N/A"), more, *there, there=there, reason=HELD) == [
        f"{told} (if it states no CPUs itself)"
    ]


@pytest.mark.parametrize(
    ("release", "whole", "doubt"),
    [
        (EARLY, "NO", ""),  # it keeps its whole nodes
        (LATE, "NO", " (if it asks for whole nodes itself)"),
        (LATEST, "NODE", ""),
        (LATEST, "NO", None),
    ],
)
def test_jobs_of_a_partition_that_stops_giving_whole_nodes(
    release: Any, whole: str, doubt: str | None
) -> None:
    shown = row("cpu=1,mem=100M,node=1", "100M", whole=whole)
    there = (terms("OverSubscribe: EXCLUSIVE"),)
    told = f"it asks for 96 CPUs, and a job of account cv may have 20 CPUs then{doubt}"
    found = fates(shown, limit("cpus_per_job: 20"), there=there, release=release)
    assert found == ([] if doubt is None else [told])


def test_the_change_that_makes_jobs_larger_names_them() -> None:
    plan = plan_of(
        MORE_CPUS[1][1],
        terms("MaxMemPerCPU: '1000'"),
        limit("cpus_per_job: 2"),
        there=(limit("cpus_per_job: 2"),),
        reason="Resources",
        release=LATE,
    )
    (change,) = [change for change in plan.changes if change.jobs]
    assert (change.subject, change.key, change.jobs) == ("cv", "MaxMemPerCPU", (1,))
    assert change.effect == "1 pending job would not start any more"

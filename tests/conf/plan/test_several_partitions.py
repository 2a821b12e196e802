"""Jobs that named several partitions with different terms, as real daemons showed and treated each.

Rows are what squeue of 22.05.8, 24.11.5 and 26.05.5 printed of jobs that waited, fates what became of them
once nodes of one partition or of the other were free (docs/decisions/0155): MinMemory, the CPUs of a task and
what comes with a GPU are those of the partition that slurmctld looked at last, the TRES those of the first.
"""

from dataclasses import replace
from typing import Any

import pytest

from hpctools.conf.plan import Plan, make_plan
from hpctools.conf.plan.demand import read_demands
from tests.conf.plan.stage import FOLDER, LATE, bundle, job, live
from tests.conf.plan.test_partition_terms import LIMITS, NODES, row

NO_MEMORY = " (if it states no memory itself)"
NO_CPUS = " (if it states no CPUs itself)"
HUGE = 2_000_000


def partitions(quick: str = "", cv: str = "") -> tuple[tuple[str, str], ...]:
    """cv and the shared partition quick, on the same nodes, each with its own terms."""
    shared = f"partitions:\n  - {{name: quick, node_groups: [reserved], departments: all{quick}}}\n"
    return (
        NODES,
        ("\ntiers:\n", f"\n{shared}\ntiers:\n"),
        ("      memory_mib_per_cpu: 3800\n", f"      memory_mib_per_cpu: 3800\n{cv}"),
    )


def memory(mib: int) -> str:
    return f", memory_mib_per_cpu: {mib}"


def parameters(text: str) -> str:
    return f", parameters: {{{text}}}"


def limit(text: str) -> tuple[str, str]:
    return LIMITS, LIMITS.replace("}", f", {text}}}")


def plan_of(shown: str, there: Any, wanted: Any, names: str = "cv,quick", release: Any = LATE) -> Plan:
    waiting = job(1, "cv1", names, account="cv-lab-a", reason="Resources", time_limit=600)
    found = live(bundle(*there, release=release), waiting, release=release)
    found = replace(found, demands=read_demands(f"1|{shown}|", release))
    return make_plan(bundle(*wanted, release=release), found, folder=FOLDER)


def fates(shown: str, there: Any, wanted: Any, names: str = "cv,quick") -> list[tuple[bool, str]]:
    return [(each.waits, each.why) for each in plan_of(shown, there, wanted, names).jobs]


def too_much(number: int) -> str:
    return f"it asks for {number} MiB on a node, and none has more than 1120665 then{NO_MEMORY}"


# What squeue shows of -c2 without a word on memory: cv gives 3800 MiB a CPU, quick 2000. The first one named
# gave the TRES, the last one looked at gave MinMemory.
BY_DEFAULT = [
    ("cv,quick", row("cpu=2,mem=7600M,node=1", "2000M", cpus="2|0|2")),
    ("quick,cv", row("cpu=2,mem=4000M,node=1", "3800M", cpus="2|0|2")),
    ("cv,quick", row("cpu=2,mem=7600M,node=1", "3800M", cpus="2|0|2")),
]


@pytest.mark.parametrize(("names", "shown"), BY_DEFAULT)
def test_a_default_that_no_node_has_closes_one_partition(names: str, shown: str) -> None:
    """It started in the other one; with both too large it never did (BadConstraints)."""
    there = partitions(memory(2000))
    assert fates(shown, there, there, names) == []
    only = f"only in cv then; in quick {too_much(HUGE * 2)}"
    assert fates(shown, there, partitions(memory(HUGE)), names) == [(True, only)]
    both = tuple((a, b.replace("3800", str(HUGE))) for a, b in partitions(memory(HUGE)))
    assert fates(shown, there, both, names) == [(False, too_much(HUGE * 2))]


def test_memory_that_is_no_default_stays_as_it_is_stated() -> None:
    there, both = (
        partitions(memory(2000)),
        tuple((a, b.replace("3800", str(HUGE))) for a, b in partitions(memory(HUGE))),
    )
    for shown in (
        row("cpu=1,mem=4000M,node=1", "4000M"),  # -n1 --mem-per-cpu=4000
        row("cpu=1,mem=8000M,node=1", "8000M"),  # -n1 --mem=8000
        row("cpu=1,mem=100M,node=1,gres/gpu=1", "100M", gpu_cpus="gpu:12"),  # --gpus=1 --mem=100
    ):
        assert fates(shown, there, both) == []


# -n1 --mem-per-cpu=4000 and -n1 --mem=8000 with MaxMemPerCPU=1000 in quick: 4 and 8 CPUs there, 2 in cv.
FEWER_CPUS = [
    ("cv,quick", row("cpu=1,mem=4000M,node=1", "1000M", cpus="4|0|1"), 4),
    ("quick,cv", row("cpu=1,mem=4000M,node=1", "4000M"), 4),
    ("cv,quick", row("cpu=1,mem=8000M,node=1", "8000M", cpus="8|0|8"), 8),
    ("cv,quick", row("cpu=1,mem=8000M,node=1", "8000M", cpus="1|0|8"), 8),  # as 22.05.8 shows it
    ("quick,cv", row("cpu=1,mem=8000M,node=1", "8000M"), 8),
]


@pytest.mark.parametrize(("names", "shown", "cpus"), FEWER_CPUS)
def test_cpus_for_memory_come_in_the_partition_that_limits_it(names: str, shown: str, cpus: int) -> None:
    there = partitions(parameters("MaxMemPerCPU: '1000'"))
    loose = limit("cpus_per_job: 40")
    told = f"it asks for {cpus} CPUs, and a job of account cv may have {cpus - 1} CPUs then"
    tight = limit(f"cpus_per_job: {cpus - 1}")
    only = f"only in cv then; in quick {told}"
    assert fates(shown, (*there, loose), (*there, tight), names) == [(True, only)]
    assert fates(shown, (*there, loose), (*there, limit(f"cpus_per_job: {cpus}")), names) == []
    alike = partitions(parameters("MaxMemPerCPU: '1000'"), "      parameters: {MaxMemPerCPU: '1000'}\n")
    assert fates(shown, (*alike, loose), (*alike, tight), names) == [(False, told)]
    one = "it asks for 2 CPUs, and a job of account cv may have 1 CPU then"
    each = f"in {{}} {one}", f"in {{}} it asks for {cpus} CPUs, and a job of account cv may have 1 CPU then"
    stated = {"cv": each[0].format("cv"), "quick": each[1].format("quick")}
    (row_,) = fates(shown, (*there, loose), (*there, limit("cpus_per_job: 1")), names)
    assert row_ == (False, "; ".join(stated[name] for name in names.split(",")))


def test_a_limit_on_memory_per_cpu_that_comes_closes_only_its_partition() -> None:
    """The limit on CPUs was there before: the change of the partition names the job."""
    shown = row("cpu=1,mem=4000M,node=1", "4000M")
    tight = limit("cpus_per_job: 2")
    plan = plan_of(shown, (*partitions(), tight), (*partitions(parameters("MaxMemPerCPU: '1000'")), tight))
    told = "it asks for 4 CPUs, and a job of account cv may have 2 CPUs then"
    assert [(each.waits, each.why) for each in plan.jobs] == [(True, f"only in cv then; in quick {told}")]
    (change,) = [each for each in plan.changes if each.jobs]
    assert (change.subject, change.key, change.effect) == (
        "quick",
        "MaxMemPerCPU",
        "1 pending job would wait longer",
    )


# --gpus=1 --mem=100 with 24 CPUs for each GPU in quick and 12 in cv; with none in quick it is not seen there.
@pytest.mark.parametrize("shown", ["gpu:24", "gpu:12"])
def test_cpus_of_gpus_are_those_of_each_partition(shown: str) -> None:
    there = partitions(", cpus_per_gpu: 24")
    text = row("cpu=1,mem=100M,node=1,gres/gpu=1", "100M", gpu_cpus=shown)
    loose, tight = limit("cpus_per_job: 40"), limit("cpus_per_job: 20")
    told = "only in cv then; in quick it asks for 24 CPUs, and a job of account cv may have 20 CPUs then"
    assert fates(text, (*there, loose), (*there, tight)) == [(True, told)]
    own = text.replace(shown, "gres/gpu:12")
    assert fates(own, (*there, loose), (*there, tight)) == []


def test_what_closes_each_of_the_partitions_may_be_of_different_kinds() -> None:
    """Too long for one, too large for the other: it can never start, though each alone would leave a way."""
    shown = row("cpu=2,mem=7600M,node=1", "2000M", cpus="2|0|2")
    there = partitions(memory(2000))
    short = ("max_time: 3-00:00:00", "max_time: 05:00:00")
    told = "it asks for 10:00:00, and at most 05:00:00 are allowed then"
    assert fates(shown, there, (*there, short)) == [(True, f"only in quick then; in cv {told}")]
    wanted = (*partitions(memory(HUGE)), short)
    both = f"in cv {told}; in quick {too_much(HUGE * 2)}"
    assert fates(shown, there, wanted) == [(False, both)]


def test_a_partition_that_was_closed_to_it_before_is_no_way_out() -> None:
    shown = row("cpu=2,mem=7600M,node=1", "2000M", cpus="2|0|2")
    never = ("max_time: 3-00:00:00", "max_time: 05:00:00")  # as it was already
    there, wanted = (*partitions(memory(2000)), never), (*partitions(memory(HUGE)), never)
    assert fates(shown, there, wanted) == [(False, too_much(HUGE * 2))]


@pytest.mark.parametrize("stated", ["100M", "5000M"])  # 22.05.8 shows the former, later releases the latter
def test_memory_stated_beside_a_default_for_each_gpu(stated: str) -> None:
    """It ran with 100 MiB, though squeue shows what the partition would give (22.05.8, 24.11.5, 26.05.5)."""
    there = partitions(parameters("DefMemPerGPU: '5000'"))
    shown = row("cpu=1,mem=100M,node=1,gres/gpu=1", stated, gpu_cpus="gpu:12", gpu_memory="gpu:5000")
    loose = limit("memory_mib: 900000")
    for names in ("quick", "cv,quick"):
        assert fates(shown, (*there, loose), (*there, limit("memory_mib: 100")), names) == []
        told = "it asks for 100 MiB, and account cv may have 99 MiB then"
        assert fates(shown, (*there, loose), (*there, limit("memory_mib: 99")), names) == [(False, told)]

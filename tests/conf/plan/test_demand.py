"""What jobs ask for and what is used, as real daemons print it."""

from typing import Any

from hpctools.conf.plan.demand import (
    Demand,
    Used,
    by_cpu,
    demand_format,
    read_demands,
    read_memory_by_cpu,
    read_used,
)

EARLY, BETWEEN, LATEST = (22, 5, 8), (25, 11, 7), (26, 5, 5)
# The CPUs that come with each GPU are the partition's, and not among those that the job asks for.
BY_DEFAULT: dict[str, Any] = {"gpu_cpus": 12, "given": frozenset({"cpu"})}
# Printed by 22.05.8, 24.11.5 and 26.05.5 alike, but for `gres:gpu:8` where the later ones have `gres/gpu:8`;
# the last column, OverSubscribe, is another one of 26.05.5.
QUEUE = """\
7|cpu=1,mem=11673M,node=2,billing=1600,gres/gpu=16|gpu:12|N/A|11673M|gres:gpu:a100:8|3|1:00:00|*|1|0|1|OK|
8|cpu=1,mem=2G,node=1,billing=300,gres/gpu=3|gpu:12|N/A|2G|N/A|1|UNLIMITED|*|1|0|1|NO|
2|cpu=1,mem=11673M,node=2,billing=1600,gres/gpu=16|gpu:12|N/A|11673M|gres/gpu:8|2|1:00:00|*|1|0|1|OK|
1|cpu=4,mem=4M,node=1,billing=33|N/A|N/A|1M|N/A|1|59:59|*|1|0|1|NO|
6|cpu=4,mem=8G,node=2,gres/gpu=2|gpu:12|N/A|2G|gres/gpu:1|2|10:00|*|1|0|1|USER|
9|cpu=200,mem=1.50T,node=4,gres/shard=2|N/A|N/A|0|gres/shard:2|4|2-00:00:00|*|1|0|1|YES|
"""


def test_what_jobs_ask_for_is_read_with_the_cpus_that_come_with_their_gpus() -> None:
    found = read_demands(QUEUE, EARLY)
    large = {"cpu": 192, "mem": 192 * 11673, "node": 2, "billing": 1600, "gres/gpu": 16}
    small = {"cpu": 36, "mem": 2048, "node": 1, "billing": 300, "gres/gpu": 3}
    assert found == {
        7: Demand(
            large,
            {"gres/gpu": 8, "gres/gpu:a100": 8},
            3,
            60,
            memory=11673,
            per_cpu=11673,
            cpus=1,
            **BY_DEFAULT,
        ),
        8: Demand(small, {}, 1, whole=True, memory=2048, unclear=2048, cpus=1, **BY_DEFAULT),
        2: Demand(large, {"gres/gpu": 8}, 2, 60, memory=11673, per_cpu=11673, cpus=1, **BY_DEFAULT),
        6: Demand(
            {"cpu": 24, "mem": 2048 * 24, "node": 2, "gres/gpu": 2},
            {"gres/gpu": 1},
            2,
            10,
            memory=2048,
            per_cpu=2048,
            cpus=4,
            **BY_DEFAULT,
        ),
        1: Demand(
            {"cpu": 4, "mem": 4, "node": 1, "billing": 33}, {}, 1, 60, whole=True, memory=1, per_cpu=1, cpus=4
        ),
        9: Demand(
            {"cpu": 200, "mem": 1536 * 1024, "node": 4, "gres/shard": 2}, {"gres/shard": 2}, 4, 2880, cpus=200
        ),
    }
    assert demand_format(EARLY).count("|") == len(QUEUE.splitlines()[0].split("|")) - 1


def test_each_release_shows_in_its_own_way_who_asked_for_whole_nodes() -> None:
    """26.05.5 prints OverSubscribe=NO for every job; the releases before it do as 24.11."""
    row = "1|cpu=1,node=1|N/A|N/A|0|N/A|1|1:00|*|1|0|1|{}|"
    words = ("OK", "NO", "NODE", "USER")
    found = {
        release: [read_demands(row.format(word), release)[1].whole for word in words]
        for release in (EARLY, BETWEEN, LATEST)
    }
    assert found == {
        EARLY: [False, True, False, False],
        BETWEEN: [False, True, False, False],
        LATEST: [False, False, True, False],
    }
    columns = [demand_format(release).split(",")[-1] for release in found]
    assert columns == ["OverSubscribe:|", "OverSubscribe:|", "Exclusive:|"]


def test_what_cannot_be_understood_is_left_out() -> None:
    assert read_demands("squeue: error: no\n\n5|x|\nJOBID|TRES|A|B|C|D|E|F|G|H|I|J|K|\n", EARLY) == {}


def test_memory_of_one_cpu_a_node_may_be_for_either() -> None:
    """Two CPUs on two nodes are as unclear as one; the CPUs that come with GPUs bring their own, then."""
    rows = """\
1|cpu=1,mem=100M,node=1|N/A|N/A|100M|N/A|1|1:00|*|1|0|1|OK|
2|cpu=2,mem=200M,node=2|N/A|N/A|100M|N/A|2|1:00|*|1|0|1|OK|
3|cpu=2,mem=200M,node=1|N/A|N/A|100M|N/A|1|1:00|*|1|0|1|OK|
4|cpu=1,mem=100M,node=2|N/A|N/A|100M|N/A|2|1:00|*|1|0|1|OK|
5|cpu=1,mem=100M,node=1|N/A|N/A|0|N/A|1|1:00|*|1|0|1|OK|
6|cpu=1,mem=100M,node=1,gres/gpu=2|gpu:12|N/A|100M|N/A|1|1:00|*|1|0|1|OK|
7|cpu=1,node=1|N/A|N/A|0|N/A|1|1:00|*|1|0|1|OK|
8|cpu=1,mem=100M,node=1,gres/gpu=1|gpu:12|gres:gpu:100|11673M|N/A|1|1:00|1|1|0|1|NO|
"""
    found = read_demands(rows, EARLY)
    assert {number: (each.per_cpu, each.unclear) for number, each in found.items()} == {
        **dict.fromkeys((1, 2, 6), (0, 100)),
        **dict.fromkeys((3, 4), (100, 0)),
        **dict.fromkeys((5, 7, 8), (0, 0)),
    }
    assert (found[6].tres["mem"], by_cpu(found[6])) == (
        100,
        Demand(
            {"cpu": 24, "mem": 2400, "node": 1, "gres/gpu": 2},
            left=1,
            memory=100,
            per_cpu=100,
            cpus=1,
            **BY_DEFAULT,
        ),
    )
    assert [by_cpu(found[number]) == found[number] for number in found] == [
        *(False, False, True, True),
        *(True, False, True, True),
    ]
    assert found[8] == Demand(
        {"cpu": 12, "mem": 100, "node": 1, "gres/gpu": 1},
        left=1,
        whole=True,
        per_gpu=100,
        threads=1,
        cpus=1,
        **BY_DEFAULT,
    )


def test_what_a_job_says_of_each_node_and_what_its_partition_gives_it() -> None:
    """22.05.8 and 24.11.5; what comes with a GPU has `gres` in front only if the job states it."""
    rows = """\
1|cpu=6,mem=600M,node=1|N/A|N/A|100M|N/A|1|1:00|*|1|6|6|OK|
2|cpu=8,mem=800M,node=1|N/A|N/A|100M|N/A|1|1:00|*|8|0|8|OK|
3|cpu=1,mem=9M,node=1,gres/gpu=2|gpu:12|gpu:5000|0|N/A|1|1:00|*|1|0|1|OK|
4|cpu=4,mem=9M,node=1,gres/gpu=2|gres/gpu:2|gres:gpu:400|0|N/A|1|1:00|*|1|0|1|OK|
5|cpu=1,mem=9M,node=1,gres/gpu=2|N/A|N/A|0|N/A|1|1:00|*|1|0|1|OK|
"""
    found = read_demands(rows, EARLY)
    assert {number: (each.task_cpus, each.node_tasks, each.node_cpus) for number, each in found.items()} == {
        1: (1, 6, 6),
        2: (8, 0, 8),
        **dict.fromkeys((3, 4, 5), (1, 0, 1)),
    }
    assert {number: (each.own_cpus, each.gpu_cpus, each.given) for number, each in found.items()} == {
        1: (6, 0, frozenset()),
        2: (8, 0, frozenset()),
        3: (1, 12, frozenset({"cpu", "mem"})),
        4: (4, 2, frozenset()),
        5: (1, 0, frozenset()),
    }


JOBS = """\
JobId=1 JobName=wrap UserId=nlp1(1) NumNodes=1-1 NumCPUs=1 MinCPUsNode=1 MinMemoryCPU=100M MinTmpDiskNode=0
JobId=2 JobName=wrap UserId=nlp1(1) NumNodes=1-1 NumCPUs=1 MinCPUsNode=1 MinMemoryNode=100M MinTmpDiskNode=0
JobId=3 JobName=x MinMemoryCPU=1 UserId=nlp1(1) MinCPUsNode=1 MinMemoryNode=100M Comment=x
JobId=4 JobName=x
JobId=1 JobName=evil MinMemoryNode=100M
 MinMemoryCPU=7
JobId=5 JobName=wrap MinCPUsNode=1 MinMemoryCPU=100M Comment=a
JobId=6 JobName=wrap ArrayJobId=5 MinCPUsNode=1
"""


def test_how_jobs_ask_for_memory_is_read_and_never_from_what_people_write() -> None:
    """A name may hold a line that looks like another job; who is told of in two ways is not told of."""
    assert read_memory_by_cpu(JOBS) == {2: False, 5: True}
    assert read_memory_by_cpu("No jobs in the system\n") == {}


USE = """\
Current Association Manager state

Association Records

ClusterName=uni-gpu Account=nlp UserName= Partition= Priority=0 ID=3
    UsageRaw/Norm/Efctv=1032.88/0.01/0.01
    GrpSubmitJobs=N(6) GrpWall=N(0.30)
    GrpTRES=cpu=640(24),mem=N(280152),gres/gpu=48(2)
    GrpTRESMins=cpu=N(2),mem=N(24115),gres/gpu=100(7)
    MaxJobs=50(1) MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=
ClusterName=uni-gpu Account=nlp UserName=nlp-head(20001) Partition= Priority=0 ID=10
    GrpSubmitJobs=N(0) GrpWall=60(1.25)
    GrpTRESMins=cpu=N(0)
Current Association Manager state

QOS Records

QOS=medium(4)
    UsageRaw=164110.817843
    GrpJobs=N(1) GrpJobsAccrue=N(0) GrpSubmitJobs=N(6) GrpWall=N(3.70)
    GrpTRESMins=cpu=N(328),gres/gpu=10(3)
    GrpTRESRunMins=cpu=N(1440)
    User Limits
      20010
        MaxJobsPU=N(0) MaxJobsAccruePU=N(0) MaxSubmitJobsPU=N(0)
"""


def test_what_is_used_of_limits_on_time_is_read() -> None:
    assert read_used(USE) == {
        ("account", "nlp", ""): Used({"cpu": 2.0, "mem": 24115.0, "gres/gpu": 7.0}, 0.30),
        ("association", "nlp-head", "nlp"): Used({"cpu": 0.0}, 1.25),
        ("qos", "medium", ""): Used({"cpu": 328.0, "gres/gpu": 3.0}, 3.70),
    }
    assert read_used("") == {}

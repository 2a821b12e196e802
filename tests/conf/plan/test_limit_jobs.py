"""Which jobs a lowered limit would disturb: each kind of limit as slurmctld was seen to treat it."""

from dataclasses import replace

import pytest

from hpctools.cli.plan_text import plan_text
from hpctools.conf import AccountTree
from hpctools.conf.accounts import Account, Association, Qos
from hpctools.conf.plan import Need, make_plan
from hpctools.conf.plan.demand import Demand, Used
from hpctools.conf.plan.limit_jobs import Queue, hindered
from hpctools.conf.plan.rules import Rules, rules_of
from hpctools.conf.plan.ways import Ways
from hpctools.slurm.versions import Release
from tests.conf.plan.stage import EARLY, FOLDER, LATE, bundle, job, live

SAFE = frozenset({"associations", "limits", "qos", "safe"})
UNSAFE = SAFE - {"safe"}
ASKS = Demand({"cpu": 8, "mem": 1024, "node": 2, "gres/gpu": 4}, {"gres/gpu": 2}, 2, 60)
HOLDS = Demand({"cpu": 4, "mem": 512, "node": 1, "gres/gpu": 2}, {}, 1, 30)
WAITING = job(1, "eva", "p", account="lab", qos="medium", time_limit=60)
RUNNING = job(2, "eva", "p", account="lab", qos="medium", time_limit=60, nodes=("n1",))
QUEUE = Queue((WAITING, RUNNING), {1: ASKS, 2: HOLDS})


def tree(
    qos: dict[str, str] | None = None,
    top: dict[str, str] | None = None,
    lab: dict[str, str] | None = None,
    eva: dict[str, str] | None = None,
) -> AccountTree:
    """A department with a lab with a person, and one QoS."""
    accounts = (Account("dep", "root", top or {}), Account("lab", "dep", lab or {}))
    return AccountTree(
        ("c",), (Qos("medium", qos or {}),), accounts, {"eva": "lab"}, (Association("eva", "lab", eva or {}),)
    )


def rules(enforced: frozenset[str] = SAFE, **parts: dict[str, str]) -> Rules:
    return rules_of(tree(**parts), enforced)


def told(after: Rules, before: Rules | None = None, queue: Queue = QUEUE) -> list[tuple[int, str, str]]:
    """What happens to whom, and why."""
    found = hindered(before or replace(after, qos={}, accounts={}, people={}), after, queue, Ways())
    return [(each.job.id, _fate(each.job.state, each.job.waits), each.job.why) for each in found]


def _fate(state: str, waits: bool) -> str:
    return "waits" if waits else {"PENDING": "never", "RUNNING": "ends"}[state]


@pytest.mark.parametrize(
    ("where", "setting", "fate", "who", "most", "other"),
    [
        ("lab", "GrpTRES gres/gpu=3", "never", "account lab", "3 GPUs", "4 GPUs"),
        ("top", "GrpTRES gres/gpu=5", "waits", "account dep", "5 GPUs", "2 GPUs"),
        ("top", "GrpTRES gres/gpu=6", "", "", "", ""),
        ("lab", "GrpTRES node=2", "waits", "account lab", "2 nodes", "1 node"),
        ("lab", "GrpTRES mem=1000", "never", "account lab", "1000 MiB", "1024 MiB"),
        ("eva", "GrpTRES cpu=11", "waits", "eva in lab", "11 CPUs", "4 CPUs"),
        ("qos", "GrpTRES cpu=7", "never", "QoS medium", "7 CPUs", "8 CPUs"),
        ("qos", "MaxTRESPerUser cpu=7", "never", "eva in QoS medium", "7 CPUs", "8 CPUs"),
        ("qos", "MaxTRESPerUser cpu=9", "waits", "eva in QoS medium", "9 CPUs", "4 CPUs"),
        ("qos", "MaxTRESPerAccount cpu=9", "waits", "lab in QoS medium", "9 CPUs", "4 CPUs"),
        ("qos", "MaxTRESPerJob cpu=7", "never", "a job of QoS medium", "7 CPUs", "8 CPUs"),
        ("qos", "MaxTRESPerJob cpu=8", "", "", "", ""),
        ("top", "MaxTRES node=1", "never", "a job of account dep", "1 node", "2 nodes"),
        ("lab", "MaxTRESPerNode gres/gpu=1", "never", "a job of account lab on a node", "1 GPU", "2 GPUs"),
        ("lab", "MaxTRESPerNode cpu=4", "", "", "", ""),
        ("qos", "MinTRESPerJob gres/gpu=5", "never", "a job of QoS medium", "5 GPUs", "4 GPUs"),
        ("qos", "GrpJobs 0", "never", "QoS medium", "no jobs", ""),
        ("qos", "MaxJobsPerUser 1", "waits", "eva in QoS medium", "1 job", "1"),
        ("qos", "MaxJobsPerAccount 1", "waits", "lab in QoS medium", "1 job", "1"),
        ("top", "MaxJobs 1", "waits", "eva in lab", "1 job", "1"),
        ("lab", "GrpJobs 2", "", "", "", ""),
        ("lab", "MaxWall 1800", "never", "a job of account lab", "00:30:00", "01:00:00"),
        ("qos", "MaxWall 3600", "", "", "", ""),
        ("lab", "GrpWall 1800", "never", "account lab", "00:30:00", "01:00:00"),
        ("lab", "MaxTRESMins cpu=479", "never", "a job of account lab", "479 CPU-minutes", "480 CPU-minutes"),
        ("qos", "MaxTRESMinsPerJob cpu=480", "", "", "", ""),
        ("top", "GrpTRESMins gres/gpu=239", "never", "account dep", "239 GPU-minutes", "240 GPU-minutes"),
        ("top", "GrpTRESMins gres/gpu=299", "waits", "account dep", "299 GPU-minutes", "60 GPU-minutes"),
        ("top", "GrpTRESMins gres/gpu=300", "", "", "", ""),
        ("top", "GrpTRESRunMins cpu=500", "waits", "account dep", "500 CPU-minutes", "120 CPU-minutes"),
        # What does nothing to a job in the queue.
        ("lab", "MaxSubmitJobs 0", "", "", "", ""),
        ("lab", "GrpSubmitJobs 0", "", "", "", ""),
        ("qos", "MaxSubmitJobsPerUser 0", "", "", "", ""),
        ("lab", "MaxTRESRunMins cpu=1", "", "", "", ""),
        ("qos", "MaxTRESRunMinsPU cpu=1", "", "", "", ""),  # since 24.05 it does, see below
        ("qos", "MinPrioThresh 99999999", "", "", "", ""),
        ("qos", "UsageThreshold 1.000000", "", "", "", ""),
    ],
)
def test_each_limit(where: str, setting: str, fate: str, who: str, most: str, other: str) -> None:
    key, _, value = setting.partition(" ")
    verb = "has to ask for" if key.startswith("Min") else "may have"
    whys = {
        "": "",
        "never": f"it asks for {other}, and {who} {verb} {most} then",
        "waits": f"{who} may have {most} then, with {other} in use",
    }
    if "Jobs" in key:
        whys |= {
            "never": f"{who} may run no jobs then",
            "waits": f"{who} may run {most} then, with {other} running",
        }
    assert told(rules(**{where: {key: value}})) == ([(1, fate, whys[fate])] if fate else [])


@pytest.mark.parametrize(("key", "who"), [("MaxTRESRunMinsPU", "eva"), ("MaxTRESRunMinsPA", "lab")])
def test_minutes_left_to_one_person_or_account_count_since_24_05(key: str, who: str) -> None:
    for most, fate, why in (
        (479, "never", "it asks for 480 CPU-minutes, and {} in QoS medium may have 479 CPU-minutes then"),
        (500, "waits", "{} in QoS medium may have 500 CPU-minutes then, with 120 CPU-minutes in use"),
    ):
        after = rules_of(tree(qos={key: f"cpu={most}"}), SAFE, release=(24, 5))
        assert told(after) == [(1, fate, why.format(who))]
        assert told(replace(after, release=(23, 11, 10))) == []


def test_an_endless_job_never_fits_a_limit_on_time() -> None:
    endless = Queue((replace(WAITING, time_limit=None),), {1: ASKS})
    assert told(rules(lab={"GrpTRESMins": "cpu=1"}), queue=endless) == [
        (1, "never", "it asks for no end of time, and account lab may have 1 CPU-minute then")
    ]
    assert told(rules(lab={"MaxWall": "60"}), queue=endless) == [
        (1, "never", "it asks for no limit, and a job of account lab may have 00:01:00 then")
    ]


def test_what_the_qos_limits_an_association_does_not_limit_again() -> None:
    generous = {
        "GrpTRES": "cpu=500",
        "MaxJobsPerAccount": "50",
        "MaxTRESPerJob": "cpu=500",
        "MaxWall": "360000",
    }
    tight = {"GrpTRES": "cpu=4,gres/gpu=1", "MaxJobs": "0", "MaxTRES": "cpu=4", "MaxWall": "60"}
    assert told(rules(qos=generous, lab=tight), rules(qos=generous)) == [
        (1, "never", "it asks for 4 GPUs, and account lab may have 1 GPU then")
    ]


def test_limits_on_jobs_are_those_of_the_nearest_and_limits_on_groups_all_count() -> None:
    own = {"MaxTRES": "cpu=500", "MaxJobs": "9", "GrpTRES": "cpu=500"}
    assert told(rules(lab={"MaxTRES": "cpu=4", "MaxJobs": "0"}, eva=own), rules(eva=own)) == []
    assert told(rules(lab={"GrpTRES": "cpu=4"}, eva=own), rules(eva=own)) == [
        (1, "never", "it asks for 8 CPUs, and account lab may have 4 CPUs then")
    ]
    # TRES by TRES: hers speaks of CPUs alone.
    assert len(told(rules(lab={"MaxTRES": "gres/gpu=1"}, eva=own), rules(eva=own))) == 1


def test_only_what_the_change_does_is_told() -> None:
    three = {"GrpTRES": "gres/gpu=3"}
    assert told(rules(lab=three), rules(lab=three)) == []
    assert told(rules(lab={"GrpTRES": "gres/gpu=5"}), rules(lab=three)) == []  # raised
    assert told(rules(lab={"GrpTRES": "gres/gpu=2"}), rules(lab=three)) == []  # it could never start
    assert told(rules(lab=three, top={"GrpJobs": "0"}), rules(lab=three)) == []
    assert told(rules(lab={"GrpTRES": "gres/gpu=4"}), rules(lab={"GrpTRES": "gres/gpu=5"})) == [
        (1, "waits", "account lab may have 4 GPUs then, with 2 GPUs in use")
    ]
    assert told(rules(UNSAFE - {"limits"}, lab=three)) == []  # nobody enforces it
    assert told(rules(lab=three), rules(UNSAFE - {"limits"}, lab=three)) != []  # from now on somebody does
    assert told(rules(qos={"MinTRESPerJob": "cpu=9"}), rules(qos={"MinTRESPerJob": "cpu=10"})) == []


def test_a_qos_that_an_account_may_not_use_any_more() -> None:
    both, other = {"QOS": "low,medium"}, {"QOS": "low"}
    why = "its QoS medium is not allowed to eva in lab then"
    assert told(rules(top=other), rules(top=both)) == [(1, "never", why)]
    assert told(rules(top=other, lab=both), rules(top=both, lab=both)) == []
    assert told(rules(top=other), rules(top={"QOS": "low,high"})) == []
    assert told(rules(top={"QOS": "+low"}), rules(top=both)) == []


def test_running_jobs_end_only_where_jobs_may_begin_that_cannot_complete() -> None:
    """AccountingStorageEnforce without `safe`: 26.05.5 ended the job within 27 s."""
    queue = replace(QUEUE, used={("account", "lab", ""): Used({"cpu": 19.0}, 12.0)})
    for key, low, high, much in (
        ("GrpTRESMins", "cpu=19", "cpu=20", "19 CPU-minutes"),
        ("GrpWall", "720", "780", "00:12:00"),
    ):
        ends = (2, "ends", f"account lab may use {much} then, which are used up: Slurm ends it")
        later = (1, "waits", f"account lab may have {much} then, with {much} in use")
        assert told(rules(UNSAFE, lab={key: low}), queue=queue) == [later, ends]
        assert told(rules(UNSAFE, lab={key: high}), queue=queue) == []
        assert 2 not in [row[0] for row in told(rules(SAFE, lab={key: low}), queue=queue)]
    used_up = rules(UNSAFE, lab={"GrpTRESMins": "cpu=10"})
    assert told(rules(UNSAFE, lab={"GrpTRESMins": "cpu=5"}), used_up, queue) == [
        (1, "waits", "account lab may have 5 CPU-minutes then, with 19 CPU-minutes in use")
    ]


def test_jobs_that_end_hold_nothing_and_shared_nodes_count_once() -> None:
    ending = replace(QUEUE, jobs=(WAITING, replace(RUNNING, state="COMPLETING")))
    assert told(rules(lab={"GrpTRES": "gres/gpu=4"}), queue=ending) == []
    twice = replace(
        QUEUE, jobs=(WAITING, RUNNING, replace(RUNNING, id=3)), demands={1: ASKS, 2: HOLDS, 3: HOLDS}
    )
    assert told(rules(lab={"GrpTRES": "node=3"}), queue=twice) == []
    assert len(told(rules(lab={"GrpTRES": "cpu=15"}), queue=twice)) == 1


def test_the_plan_names_them_at_the_change_and_in_its_list() -> None:
    there, wanted = (
        bundle(),
        bundle(("limits: {gpus: 48, cpus: 640, gpus", "limits: {gpus: 12, cpus: 640, gpus")),
    )
    stuck = job(7, "nlp1", "nlp", account="nlp-lab-a")
    later = job(8, "nlp2", "nlp", account="nlp-lab-a")
    runs = job(9, "nlp1", "nlp", account="nlp-lab-a", nodes=("reserved-1",))
    demands = {number: Demand({"gres/gpu": gpus}) for number, gpus in ((7, 16), (8, 8), (9, 8))}
    plan = make_plan(wanted, replace(live(there, stuck, later, runs), demands=demands), folder=FOLDER)
    (change,) = plan.changes
    assert (change.area, change.subject, change.key, change.needs) == ("account", "nlp", "GrpTRES", Need.LIVE)
    assert change.jobs == (7, 8)
    assert change.effect.endswith("; 1 pending job would not start any more; 1 pending job would wait longer")
    assert [(row.id, row.user, row.state, row.waits, row.why) for row in plan.jobs] == [
        (7, "nlp1", "PENDING", False, "it asks for 16 GPUs, and account nlp may have 12 GPUs then"),
        (8, "nlp2", "PENDING", True, "account nlp may have 12 GPUs then, with 8 GPUs in use"),
    ]


def test_an_account_that_moves_comes_under_other_limits() -> None:
    from hpctools.conf.account_changes import AccountChange
    from hpctools.conf.plan.rules import changed

    small = Account("small", "root", {"GrpTRES": "gres/gpu=1"})
    there = replace(tree(), accounts=(*tree().accounts, small))
    before = rules_of(there, SAFE)
    moves = AccountChange("account", "set", "lab", key="Parent", before="dep", after="small")
    assert told(changed(before, [moves], SAFE), before) == [
        (1, "never", "it asks for 4 GPUs, and account small may have 1 GPU then")
    ]


@pytest.mark.parametrize(
    ("release", "need"), [(EARLY, Need.LIVE), (LATE, Need.RECONFIGURE), ((26, 5, 5), Need.LIVE)]
)
def test_limits_that_slurmctld_does_not_hand_down_by_itself(release: Release, need: Need) -> None:
    """24.11.5 lets people in labs run above their department's limits until it starts anew."""
    there = bundle(release=release)
    edits = (("gpus_per_job: 48, jobs", "gpus_per_job: 8, jobs"), ("jobs: 20,", "jobs_per_user: 3,"))
    plan = make_plan(bundle(*edits, release=release), live(there, release=release), folder=FOLDER)
    found = {(each.subject, each.key): (each.needs, each.told) for each in plan.changes}
    assert found == {
        ("nlp", "MaxTRES"): (need, True),
        ("nlp-lab-b", "GrpJobs"): (Need.LIVE, True),
        ("nlp-lab-b", "MaxJobs"): (Need.LIVE, True),
    }
    assert [step.need for step in plan.steps] == ([Need.RECONFIGURE] if need is Need.RECONFIGURE else [])
    assert plan.files == ()
    assert "1. tell slurmdbd\n" in plan_text(plan)


@pytest.mark.parametrize(
    ("release", "need"), [(EARLY, Need.LIVE), (LATE, Need.RECONFIGURE), ((26, 5, 5), Need.RECONFIGURE)]
)
def test_an_account_that_moves_takes_a_reconfigure_where_slurmctld_forgets_the_limits_above(
    release: Release, need: Need
) -> None:
    there = bundle(release=release)
    moved = tuple(
        replace(row, parent="cv") if row.name == "nlp-lab-b" else row for row in there.accounts.accounts
    )
    now = replace(live(there, release=release), accounts=replace(there.accounts, accounts=moved))
    plan = make_plan(there, now, folder=FOLDER)
    assert [(each.subject, each.key, each.needs) for each in plan.changes] == [("nlp-lab-b", "Parent", need)]


def under(partition_qos: dict[str, str], qos: dict[str, str] | None = None, **parts: dict[str, str]) -> Rules:
    """The partition p has a QoS of its own."""
    made = rules(qos=qos or {}, **parts)
    return replace(made, qos={**made.qos, "door": partition_qos}, partitions={"p": "door"})


def test_what_the_partitions_qos_limits_nobody_limits_again() -> None:
    """Unless the job's own QoS goes first (OverPartQOS); what runs in the partition counts to both."""
    never = "it asks for 8 CPUs, and a job of QoS door may have 4 CPUs then"
    tight, wide = {"MaxTRESPerJob": "cpu=4"}, {"MaxTRESPerJob": "cpu=16"}
    over = {**wide, "Flags": "DenyOnLimit,OverPartQOS"}
    assert told(under(tight)) == [(1, "never", never)]
    assert told(under(tight, qos=wide), rules(qos=wide)) == [(1, "never", never)]
    assert told(under(tight, qos=over), rules(qos=over)) == []
    assert told(under(wide, qos=tight, lab={"MaxTRES": "cpu=2"}), rules()) == []
    together = under({"GrpTRES": "gres/gpu=5"})
    assert told(together) == [(1, "waits", "QoS door may have 5 GPUs then, with 2 GPUs in use")]
    assert told(replace(together, partitions={"q": "door"})) == []
    assert told(under({"MaxJobsPerUser": "0"}, eva={"MaxJobs": "9"})) == [
        (1, "never", "eva in QoS door may run no jobs then")
    ]


def test_a_job_that_named_several_partitions_is_where_it_fits_best() -> None:
    both = replace(QUEUE, jobs=(replace(WAITING, partition="p,q"), RUNNING))
    tight = under({"MaxTRESPerJob": "cpu=4"})
    why = "only in q then; in p it asks for 8 CPUs, and a job of QoS door may have 4 CPUs then"
    assert told(tight, queue=both) == [(1, "waits", why)]
    waits = replace(
        tight, qos={**tight.qos, "gate": {"GrpTRES": "cpu=8"}}, partitions={"p": "gate", "q": "door"}
    )
    only = why.replace("q then; in p", "p then; in q")
    full = "QoS gate may have 8 CPUs then, with 4 CPUs in use"
    assert told(waits, queue=both) == [(1, "waits", only), (1, "waits", full)]


CV_LIMITS = "limits: {gpus: 48, gpus_per_user: 32}"
CV_NODES = "      node_groups: [reserved, shared, spot]\n      max_time: 3-00:00:00"


@pytest.mark.parametrize("lists", ["cv", "cv,nlp"])
def test_a_job_that_gets_whole_nodes_gets_all_that_is_on_them(lists: str) -> None:
    """The smallest nodes of cv (48 CPUs, 4 GPUs) and, of nlp with which it is named, the same."""
    small = Demand({"cpu": 1, "mem": 100, "node": 2}, whole=True)
    for limit, asks in (("cpus_per_job: 95", "96 CPUs"), ("gpus_per_job: 7", "8 GPUs")):
        tight = bundle((CV_LIMITS, CV_LIMITS.replace("}", f", {limit}}}")))
        found = replace(live(bundle(), job(1, "cv1", lists, account="cv-lab-a")), demands={1: small})
        (row,) = make_plan(tight, found, folder=FOLDER).jobs
        assert row.why.startswith(f"it asks for {asks}, and a job of account cv may have ")
        shared = replace(found, demands={1: replace(small, whole=False)})
        assert make_plan(tight, shared, folder=FOLDER).jobs == ()
    enough = bundle((CV_LIMITS, CV_LIMITS.replace("}", ", cpus_per_job: 96, gpus_per_job: 8}")))
    assert make_plan(enough, found, folder=FOLDER).jobs == ()


def test_a_partition_that_gives_whole_nodes_from_now_on() -> None:
    """The jobs that do not fit their limits any more stand at that change; memory comes with each CPU."""
    large = CV_NODES.replace("shared, ", "")
    shared, alone = (CV_NODES, large), (CV_NODES, f"{large}\n      parameters: {{OverSubscribe: EXCLUSIVE}}")
    waiting = tuple(job(number, "cv1", "cv", account="cv-lab-a") for number in (1, 2))
    demands = {
        1: Demand({"cpu": 2, "mem": 200, "node": 1}, per_cpu=100),
        2: Demand({"cpu": 96, "mem": 9601, "node": 1}),  # it never could
    }
    for limit, why in (
        ("cpus_per_job: 95", "it asks for 96 CPUs, and a job of account cv may have 95 CPUs then"),
        ("memory_mib: 9599", "it asks for 9600 MiB, and account cv may have 9599 MiB then"),
    ):
        limited = (CV_LIMITS, CV_LIMITS.replace("}", f", {limit}}}"))
        found = replace(live(bundle(limited, shared), *waiting), demands=demands)
        plan = make_plan(bundle(limited, alone), found, folder=FOLDER)
        assert [(row.id, row.why) for row in plan.jobs] == [(1, why)]
        (change,) = plan.changes
        assert (change.subject, change.key, change.jobs) == ("cv", "OverSubscribe", (1,))
        assert change.effect == "1 pending job would not start any more"


@pytest.mark.parametrize(
    ("demand", "cpus", "memory"),
    [  # as it was measured, docs/decisions/0079; nodes of reserved: 96 CPUs on 48 cores, 8 GPUs
        (Demand({"cpu": 1, "mem": 100, "node": 1}, per_cpu=100), 2, 200),
        (Demand({"cpu": 3, "mem": 300, "node": 1}, per_cpu=100), 4, 400),
        (Demand({"cpu": 2, "mem": 200, "node": 2}, {}, 2, per_cpu=100), 4, 400),
        (Demand({"cpu": 1, "mem": 100, "node": 1}, per_cpu=100, threads=1), 2, 100),
        (Demand({"cpu": 12, "mem": 1200, "node": 1}, per_cpu=100, threads=1), 24, 1200),
        (Demand({"cpu": 1, "mem": 100, "node": 1}, whole=True, per_cpu=100), 96, 9600),
        (Demand({"cpu": 1, "mem": 100, "node": 1}, whole=True, per_cpu=100, threads=1), 96, 4800),
        (Demand({"cpu": 12, "mem": 100, "node": 1, "gres/gpu": 1}, per_gpu=100, gpu_cpus=12), 12, 100),
        (
            Demand({"cpu": 12, "mem": 100, "node": 1, "gres/gpu": 1}, whole=True, per_gpu=100, gpu_cpus=12),
            96,
            800,
        ),
        (Demand({"cpu": 1, "mem": 100, "node": 1}, whole=True), 96, 100),
    ],
)
def test_jobs_take_whole_cores_and_the_memory_that_comes_with_them(
    demand: Demand, cpus: int, memory: int
) -> None:
    large = CV_NODES.replace("shared, ", "")
    found = replace(
        live(bundle((CV_NODES, large)), job(1, "cv1", "cv", account="cv-lab-a")), demands={1: demand}
    )

    def whys(limit: str) -> list[str]:
        wanted = bundle((CV_NODES, large), (CV_LIMITS, CV_LIMITS.replace("}", f", {limit}}}")))
        return [row.why for row in make_plan(wanted, found, folder=FOLDER).jobs]

    assert whys(f"cpus_per_job: {cpus}, memory_mib: {memory}") == []
    (why,) = whys(f"cpus_per_job: {cpus - 1}")
    assert (
        why == f"it asks for {cpus} CPUs, and a job of account cv may have {cpus - 1} {_cpu(cpus - 1)} then"
    )
    (why,) = whys(f"memory_mib: {memory - 1}")
    assert why == f"it asks for {memory} MiB, and account cv may have {memory - 1} MiB then"


def _cpu(number: int) -> str:
    return "CPU" if number == 1 else "CPUs"


def test_where_cpus_are_given_one_by_one_no_core_is_counted() -> None:
    """SelectTypeParameters says so of a partition, or some of its nodes count cores as CPUs."""
    demand = Demand({"cpu": 1, "mem": 100, "node": 1}, per_cpu=100)
    tight = (CV_LIMITS, CV_LIMITS.replace("}", ", cpus_per_job: 1}"))
    single = (CV_NODES, f"{CV_NODES}\n      parameters: {{SelectTypeParameters: CR_CPU}}")
    cores = ("    capacity: on-demand\n", "    capacity: on-demand\n    parameters: {CPUs: '24'}\n")
    large = (CV_NODES, CV_NODES.replace("shared, ", ""))
    waiting = job(1, "cv1", "cv", account="cv-lab-a")
    for edits, ids in (((single,), []), ((), [1]), ((cores,), []), ((cores, large), [1])):
        found = replace(live(bundle(*edits), waiting), demands={1: demand})
        assert [row.id for row in make_plan(bundle(*edits, tight), found, folder=FOLDER).jobs] == ids


def test_a_partition_that_gets_a_qos_names_the_jobs_at_that_change() -> None:
    door = ("  high:\n", "  door: {priority: 1, cpus_per_user: 4}\n  high:\n")
    bound = (CV_NODES, f"{CV_NODES}\n      parameters: {{QOS: door}}")
    found = live(bundle(door), job(1, "cv1", "cv", account="cv-lab-a"))
    found = replace(found, demands={1: Demand({"cpu": 8, "node": 1})})
    plan = make_plan(bundle(door, bound), found, folder=FOLDER)
    why = "it asks for 8 CPUs, and cv1 in QoS door may have 4 CPUs then"
    assert [(row.id, row.why) for row in plan.jobs] == [(1, why)]
    assert [(each.subject, each.key, each.jobs) for each in plan.changes] == [("cv", "QOS", (1,))]

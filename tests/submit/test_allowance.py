"""What the cluster allows, known before anything is submitted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.errors import SubmitError
from hpctools.slurm.limits import Account, Bounds, Limits, PartitionTimes
from hpctools.submit.allowance import (
    check_allowance,
    check_each_qos,
    check_own_qos,
    replica_minutes,
)
from hpctools.submit.nodes import NodeSizes
from hpctools.submit.request import Request

USER = Bounds("user dl1 in account dl-lab-a")
ACCOUNT = Bounds("account dl")
HIGH, ELASTIC = Bounds("QoS high"), Bounds("QoS elastic")
SIZES = NodeSizes((1, 2, 4, 8), "1,2,4,8")


def limits(
    user: Bounds = USER,
    account: Bounds = ACCOUNT,
    high: Bounds = HIGH,
    elastic: Bounds = ELASTIC,
    **more: Any,
) -> Limits:
    return Limits(
        **{
            "user": "dl1",
            "enforced": frozenset({"associations", "limits", "qos"}),
            "accounts": (Account("dl-lab-a", True, ("high", "elastic"), (user, account)),),
            "qos": {"high": high, "elastic": elastic},
            "grace": {"elastic": 8},
            "partitions": {"dl": PartitionTimes(None, 1440)},
            **more,
        }
    )


def refusal(request: Request, known: Limits) -> str:
    with pytest.raises(SubmitError) as caught:
        check_allowance(request, known)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("factor", "safe", "most"), [(2.0, True, 30), (1.5, True, 40), (2.0, False, 60), (0.5, True, 60)]
)
def test_a_time_limit_counts_as_the_qos_has_it_counted_before_a_job_starts(
    factor: float, safe: bool, most: int
) -> None:
    """Slurm never starts a job whose limit times UsageFactor is above MaxWall (UsageFactorSafe)."""
    known = limits(
        user=replace(USER, minutes=60),
        elastic=replace(ELASTIC, minutes=60),
        usage_factors={"high": factor, "elastic": factor},
        asked_with_factor=frozenset({"high", "elastic"} if safe else ()),
    )
    request = Request(SIZES, minutes=most, partitions=("dl",))
    check_allowance(request, known)
    assert f"allows {most}; give --time {most} or less" in refusal(replace(request, minutes=most + 1), known)
    assert replica_minutes(request, known) == most


def test_a_run_without_a_time_limit_is_compared_with_that_of_its_partition() -> None:
    request = Request(SIZES, partitions=("dl",))
    known = limits(high=replace(HIGH, minutes=60), partitions={"dl": PartitionTimes(240, 1440)})
    assert refusal(request, known) == (
        "without --time a job gets 240 minutes (DefaultTime of partition dl) and QoS high allows 60; give "
        "--time 60 or less"
    )
    check_allowance(request, limits(partitions={"dl": PartitionTimes(240, 1440)}))
    check_allowance(request, limits(high=replace(HIGH, minutes=60)))


def test_a_run_that_is_to_have_no_time_limit_is_refused_where_there_is_one() -> None:
    request = Request(SIZES, partitions=("dl",), unlimited=True)
    assert refusal(request, limits()) == (
        "--time asks for no limit and partition dl allows 1440; give --time 1440 or less"
    )
    check_allowance(request, limits(partitions={"dl": PartitionTimes(240, None)}))


def test_what_has_no_limits_is_allowed():
    check_allowance(Request(SIZES, per_node={"gres/gpu": 8}, minutes=60, partitions=("dl",)), limits())


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (
            limits(account=replace(ACCOUNT, group={"gres/gpu": 20})),
            "--nodes 1,2,4,8 takes up to 32 GPUs and account dl may have 20 (GrpTRES gres/gpu); ask for at "
            "most 4 nodes",
        ),
        (
            limits(user=replace(USER, group={"node": 7})),
            "takes up to 8 nodes and user dl1 in account dl-lab-a may have 7 (GrpTRES node); ask for at "
            "most 4",
        ),
        (
            limits(user=replace(USER, job={"node": 3})),
            "takes up to 4 nodes and user dl1 in account dl-lab-a may have 3 (MaxTRES node); ask for at "
            "most 4",
        ),
        (
            limits(elastic=replace(ELASTIC, user={"gres/gpu": 12})),
            "takes up to 28 GPUs and QoS elastic may have 12 (MaxTRESPU gres/gpu); ask for at most 4 nodes",
        ),
        (
            limits(high=replace(HIGH, user={"gres/gpu": 3})),
            "takes up to 4 GPUs and QoS high may have 3 (MaxTRESPU gres/gpu); ask for a smaller minimum",
        ),
        (
            limits(user=replace(USER, jobs=3)),
            "makes 4 jobs, 3 of them replicas, and user dl1 in account dl-lab-a may have 3; take larger "
            "steps",
        ),
        (limits(elastic=replace(ELASTIC, submitted=2)), "QoS elastic may have 2; take larger steps"),
        (
            limits(high=replace(HIGH, in_account={"gres/gpu": 3})),
            "takes up to 4 GPUs and QoS high may have 3 (MaxTRESPA gres/gpu); ask for a smaller minimum",
        ),
        (
            limits(elastic=replace(ELASTIC, in_account={"node": 3})),
            "takes up to 7 nodes and QoS elastic may have 3 (MaxTRESPA node); ask for at most 4 nodes",
        ),
        (limits(elastic=replace(ELASTIC, account_jobs=2)), "QoS elastic may have 2; take larger steps"),
        (limits(elastic=replace(ELASTIC, account_submitted=2)), "QoS elastic may have 2; take larger steps"),
        *[
            (
                known,
                f"--nodes 1,2,4,8 takes 4 GPUs of each node and {owner} allows 3 (MaxTRESPerNode gres/gpu); "
                "ask for fewer on each node and for more nodes, or for a higher limit",
            )
            for known, owner in (
                (limits(user=replace(USER, on_node={"gres/gpu": 3})), "user dl1 in account dl-lab-a"),
                (limits(high=replace(HIGH, on_node={"gres/gpu": 3})), "QoS high"),
                (limits(elastic=replace(ELASTIC, on_node={"gres/gpu": 3})), "QoS elastic"),
            )
        ],
        (
            limits(high=replace(HIGH, least={"node": 2})),
            "--nodes 1,2,4,8: a job of QoS high has at least 2 nodes (MinTRES node), and the baseline job of "
            "this run 1; raise the minimum to 2, or take another QoS (--qos)",
        ),
        (
            limits(elastic=replace(ELASTIC, least={"node": 2})),
            "a job of QoS elastic has at least 2 nodes (MinTRES node), and a replica job of this run 1; take "
            "larger steps: at least 2 nodes from one size to the next",
        ),
        (
            limits(high=replace(HIGH, least={"gres/gpu": 9})),
            "--nodes 1,2,4,8: a job of QoS high has at least 9 GPUs (MinTRES gres/gpu), and the baseline job "
            "of this run 4; raise the minimum to 3, or take another QoS (--qos)",
        ),
        (
            limits(elastic=replace(ELASTIC, least={"gres/gpu": 5})),
            "a job of QoS elastic has at least 5 GPUs (MinTRES gres/gpu), and a replica job of this run 4; "
            "take larger steps: at least 2 nodes from one size to the next",
        ),
        (
            limits(high=replace(HIGH, user_running={"gres/gpu": 239})),
            "QoS high allows jobs of one user that run 3.983 until their ends (MaxTRESRunMinsPU gres/gpu); "
            "give --time 59 or less",
        ),
        (
            limits(high=replace(HIGH, account_running={"gres/gpu": 239})),
            "QoS high allows jobs of one account that run 3.983 until their ends (MaxTRESRunMinsPA gres/gpu)",
        ),
        (
            limits(high=replace(HIGH, minutes=30)),
            "--time asks for 60 minutes and QoS high allows 30; give --time 30 or less",
        ),
        (
            limits(partitions={"dl": PartitionTimes(None, 45)}),
            "--time asks for 60 minutes and partition dl allows 45",
        ),
        (limits(qos={"high": HIGH}), "this cluster has no QoS elastic, with which replica jobs run"),
        (
            limits(accounts=(Account("dl-lab-a", True, ("high",)),)),
            "account dl-lab-a may not use the QoS elastic",
        ),
    ],
)
def test_what_could_never_be_is_refused_with_what_could(known, message):
    request = Request(SIZES, per_node={"gres/gpu": 4}, minutes=60, partitions=("dl",))
    assert message in refusal(request, known)


def test_what_is_just_enough_is_allowed() -> None:
    request = Request(SIZES, per_node={"gres/gpu": 4}, minutes=60, partitions=("dl",))
    all_of_it = {
        "in_account": {"gres/gpu": 28},
        "on_node": {"gres/gpu": 4},
        "least": {"node": 1, "gres/gpu": 4},
        "account_jobs": 3,
        "account_submitted": 3,
        "user_running": {"gres/gpu": 240},
        "account_running": {"gres/gpu": 240},
    }
    few = replace(USER, jobs=2, submitted=2, on_node={"gres/gpu": 1})
    check_allowance(
        request, limits(user=few, high=replace(HIGH, **all_of_it), elastic=replace(ELASTIC, **all_of_it))
    )
    assert "may have 2" in refusal(request, limits(user=replace(USER, jobs=2)))


def test_gpus_that_a_qos_wants_of_each_job_are_asked_for() -> None:
    """MinTRES=gres/gpu=1 keeps people without GPUs away from a QoS: their jobs wait for ever (QOSMinGRES)."""
    known = limits(high=replace(HIGH, least={"gres/gpu": 1, "cpu": 99}))
    plain = Request(SIZES, per_node={"cpu": 1}, partitions=("dl",))
    assert refusal(plain, known) == (
        "--nodes 1,2,4,8: a job of QoS high has at least 1 GPUs (MinTRES gres/gpu), and the baseline job of "
        "this run 0; ask for GPUs, or take another QoS (--qos)"
    )
    typed = limits(high=replace(HIGH, least={"gres/gpu:a100": 1}))
    assert "at least 1 a100 GPUs" in refusal(plain, typed)
    check_allowance(replace(plain, per_node={"gres/gpu": 1}), typed)  # Slurm may choose that type


def test_whole_nodes_bring_gpus_that_nobody_asked_for() -> None:
    known = limits(high=replace(HIGH, least={"gres/gpu": 1}))
    plain = Request(SIZES, per_node={"cpu": 1}, partitions=("dl",))
    check_allowance(replace(plain, whole=True), known)
    check_allowance(plain, replace(known, partitions={"dl": PartitionTimes(None, 1440, whole=True)}))


def test_no_job_gets_more_than_its_nodes_have() -> None:
    """MinTRES of CPUs and memory: such a job waits for ever (QOSMinCpuNotSatisfied)."""
    node = {"cpu": 64, "mem": 512_000, "gres/gpu": 4, "gres/gpu:a100": 4}
    sizes = {"dl": node, "small": {"cpu": 8, "mem": 16_000}}
    request = Request(SIZES, partitions=("dl",))

    def with_least(**least: int) -> Limits:
        return limits(high=replace(HIGH, least=least), largest=sizes)

    assert refusal(request, with_least(cpu=65)) == (
        "--nodes 1,2,4,8: a job of QoS high has at least 65 CPUs (MinTRES cpu), and the baseline job of this "
        "run at most 64; raise the minimum to 2, or take another QoS (--qos)"
    )
    assert "512001 MiB of memory (MinTRES mem)" in refusal(request, with_least(mem=512_001))
    check_allowance(request, with_least(cpu=64, mem=512_000, billing=10**6))
    check_allowance(request, replace(with_least(cpu=65), largest={}))
    whole, gpus = replace(request, whole=True), {"gres/gpu": 1}
    check_allowance(whole, with_least(**gpus))
    assert "take a partition that has GPUs" in refusal(
        replace(whole, partitions=("small",)), with_least(**gpus)
    )
    check_allowance(replace(request, partitions=("small", "dl")), with_least(cpu=64))
    check_allowance(replace(request, partitions=("small", "elsewhere")), with_least(cpu=64))
    any_type = replace(request, per_node={"gres/gpu": 5})
    assert "at most 4" in refusal(any_type, with_least(**{"gres/gpu:a100": 5}))


def test_of_two_qos_the_first_says_how_much_a_job_has_at_least() -> None:
    part = Bounds("QoS part", least={"gres/gpu": 1})
    known = limits(
        qos={"high": replace(HIGH, least={"gres/gpu": 8}), "elastic": ELASTIC, "part": part},
        partitions={"dl": PartitionTimes(None, 1440, qos="part")},
    )
    request = Request(NodeSizes((1,)), per_node={"gres/gpu": 4}, partitions=("dl",))
    check_allowance(request, known)
    assert "at least 8 GPUs" in refusal(request, replace(known, over_partitions=frozenset({"high"})))


def test_a_qos_s_limit_factor_raises_what_the_association_may_have() -> None:
    """Of jobs of that QoS alone (slurmctld's _apply_limit_factor)."""
    request = Request(SIZES, per_node={"gres/gpu": 4}, partitions=("dl",))
    few = {"user": replace(USER, job={"node": 3}), "account": replace(ACCOUNT, group={"gres/gpu": 16})}
    twice = replace(ELASTIC, factor=2.0)
    check_allowance(request, limits(**few, elastic=twice))
    assert "user dl1 in account dl-lab-a may have 3 (MaxTRES node)" in refusal(
        request, limits(**few, elastic=replace(ELASTIC, group={"gres/gpu": 99}))
    )
    assert refusal(request, limits(**few, elastic=replace(ELASTIC, factor=1.5))) == (
        "--nodes 1,2,4,8 takes up to 32 GPUs and account dl may have 24 (GrpTRES gres/gpu); ask for at most "
        "4 nodes"
    )
    fixed = replace(request, sizes=NodeSizes((6,)))
    assert "may have 3 (MaxTRES node)" in refusal(fixed, limits(**few, elastic=twice))
    check_allowance(fixed, limits(**few, high=replace(HIGH, factor=2.0)))
    in_part = limits(
        **few,
        partitions={"dl": PartitionTimes(None, None, qos="part")},
        qos={"high": replace(HIGH, factor=9.0), "elastic": ELASTIC, "part": Bounds("QoS part", factor=0.5)},
    )
    assert "may have 1 (MaxTRES node)" in refusal(fixed, in_part)


def test_the_size_that_is_named_is_what_all_limits_allow() -> None:
    known = limits(account=replace(ACCOUNT, group={"node": 7}), elastic=replace(ELASTIC, user={"node": 2}))
    assert refusal(Request(SIZES), known).endswith("(GrpTRES node); ask for at most 2 nodes")


def test_a_qos_that_the_account_may_not_use_is_answered_with_those_it_may() -> None:
    assert refusal(Request(SIZES, qos="critical"), limits()) == (
        "account dl-lab-a may not use the QoS critical; it has: high, elastic"
    )


def test_the_time_to_leave_is_compared_with_slurms():
    request = Request(SIZES, graceful_s=600, graceful_place="p.yaml line 6")
    assert refusal(request, limits()) == (
        "p.yaml line 6: gracefulShutdownTimeoutInSeconds is 600, and Slurm leaves a preempted job 8 s "
        "(GraceTime of the QoS elastic); give 8 or less, or ask for a longer GraceTime"
    )
    check_allowance(replace(request, graceful_s=8), limits())


def test_a_run_of_one_size_needs_no_elastic_qos():
    check_allowance(Request(NodeSizes((4,))), limits(qos={"high": HIGH}))


def not_enforced(**more: Any) -> Limits:
    return limits(
        enforced=frozenset({"associations"}),
        user=replace(USER, minutes=5),
        account=replace(ACCOUNT, group={"node": 1}, group_jobs=1),
        high=replace(HIGH, minutes=10),
        elastic=replace(ELASTIC, minutes=10),
        **more,
    )


def test_what_slurm_does_not_enforce_is_no_limit():
    known = not_enforced(partitions={"dl": PartitionTimes(None, None)})
    request = Request(SIZES, minutes=10**6, partitions=("dl",))
    check_allowance(request, known)
    assert replica_minutes(request, known) is None


@pytest.mark.parametrize("enforced", [{"associations"}, set()])
def test_a_partition_s_time_limit_holds_whatever_the_accounting_enforces(enforced: set[str]) -> None:
    """It is slurmctld's own: the job would be refused, or wait for ever (PartitionTimeLimit)."""
    known = replace(not_enforced(), enforced=frozenset(enforced))
    request = Request(SIZES, minutes=1440, partitions=("dl",))
    check_allowance(request, known)
    assert replica_minutes(request, known) == 1440
    longer = replace(request, minutes=1441)
    assert refusal(longer, known).endswith("partition dl allows 1440; give --time 1440 or less")
    beyond = replace(known, beyond_times=frozenset({"high"}))
    check_allowance(replace(longer, qos="high"), beyond)
    check_allowance(longer, beyond)  # it is the default


def test_another_account_has_other_limits():
    tight = Account("nlp", False, ("high", "elastic"), (Bounds("account nlp", group={"node": 2}),))
    known = limits(accounts=(*limits().accounts, tight))
    check_allowance(Request(SIZES), known)
    assert "account nlp may have 2" in refusal(Request(SIZES, account="nlp"), known)


def test_a_shorter_limit_of_the_elastic_qos_is_that_of_replicas():
    assert replica_minutes(Request(SIZES), limits(elastic=replace(ELASTIC, minutes=90))) == 90
    assert replica_minutes(Request(SIZES), limits()) is None
    assert replica_minutes(Request(SIZES), None) is None


def test_where_the_elastic_qos_has_no_time_limit_the_user_s_and_the_partition_s_are_that_of_replicas():
    mine = replace(USER, minutes=1440)
    assert replica_minutes(Request(SIZES), limits(user=mine)) == 1440
    assert replica_minutes(Request(SIZES), limits(user=mine, elastic=replace(ELASTIC, minutes=2000))) == 2000
    there = Request(SIZES, partitions=("dl",))
    assert replica_minutes(there, limits(elastic=replace(ELASTIC, minutes=2000))) == 1440
    assert replica_minutes(there, limits(beyond_times=frozenset({"elastic"}))) is None


def test_the_qos_s_own_limit_takes_the_place_of_the_association_s():
    """Slurm looks at the job's QoS first; a user has a day, and seven with --qos=high."""
    mine = replace(USER, minutes=1440, job={"gres/gpu": 3})
    request = Request(SIZES, per_node={"gres/gpu": 4}, minutes=2880)
    fixed = replace(request, sizes=NodeSizes((1,)))
    larger = replace(HIGH, minutes=10080, job={"gres/gpu": 64})
    check_allowance(fixed, limits(user=mine, high=larger))
    assert "user dl1 in account dl-lab-a allows 1440" in refusal(
        replace(fixed, per_node={}), limits(user=mine)
    )
    assert "(MaxTRES gres/gpu)" in refusal(fixed, limits(user=mine, high=replace(HIGH, minutes=10080)))
    replicas = refusal(request, limits(user=mine, high=larger))
    assert "takes up to 16 GPUs and user dl1 in account dl-lab-a may have 3" in replicas, (
        "they run as elastic"
    )
    check_allowance(request, limits(user=mine, high=larger, elastic=replace(ELASTIC, job={"gres/gpu": 16})))


def test_account_and_qos_in_capitals_are_the_same_ones():
    mine, larger = replace(USER, minutes=1440, job={"node": 1}), replace(HIGH, minutes=10080, job={"node": 4})
    request = Request(NodeSizes((3,)), account="DL-Lab-A", qos="HIGH", minutes=2880)
    check_allowance(request, limits(user=mine, high=larger))
    assert "QoS high allows 10080" in refusal(replace(request, minutes=10081), limits(user=mine, high=larger))
    for enforced in (frozenset({"limits"}), frozenset({"associations", "limits"})):
        assert "QoS high allows 60" in refusal(
            request, limits(high=replace(HIGH, minutes=60), enforced=enforced)
        )


def test_of_a_list_of_qos_one_that_passes_is_enough():
    """sbatch --qos=a,b since Slurm 24.11."""
    request, mine = Request(NodeSizes((1,)), minutes=2880, qos="low,high"), replace(USER, minutes=1440)
    known = limits(user=mine, high=replace(HIGH, minutes=10080))
    check_each_qos(request, known, lambda each: check_allowance(each, known))
    long = replace(request, minutes=10081)
    with pytest.raises(SubmitError, match="may not use the QoS low"):
        check_each_qos(long, known, lambda each: check_allowance(each, known))


PART = Bounds("QoS part", user={"node": 6}, job={"gres/gpu": 8}, minutes=120)
IN_PART = {"dl": PartitionTimes(None, None, qos="part")}


def with_part(part: Bounds = PART, **more: Any) -> Limits:
    """As `limits`, in a partition that has a QoS; those of the jobs are given as theirs."""
    high, elastic = more.pop("high", HIGH), more.pop("elastic", ELASTIC)
    qos = {"high": high, "elastic": elastic, "part": part}
    return limits(**{"qos": qos, "partitions": IN_PART, **more})


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (
            with_part(),
            "takes up to 8 nodes and QoS part may have 6 (MaxTRESPU node); ask for at most 4 nodes",
        ),
        (with_part(replace(PART, user={})), "takes up to 16 GPUs and QoS part may have 8 (MaxTRES gres/gpu)"),
        (with_part(replace(PART, user={}, job={})), "asks for 180 minutes and QoS part allows 120"),
        (with_part(Bounds("QoS part", jobs=3)), "makes 4 jobs, 3 of them replicas, and QoS part may have 3"),
        # The job's own limit holds where the partition's QoS has none, and where it is more.
        (with_part(Bounds("QoS part"), high=replace(HIGH, minutes=60)), "QoS high allows 60"),
        (
            with_part(replace(PART, user={"node": 99}, job={}), elastic=replace(ELASTIC, user={"cpu": 1})),
            "may have 1 (MaxTRESPU cpu)",
        ),
        # An association's holds for those whose own QoS has none, whichever of the two goes first.
        (
            with_part(Bounds("QoS part"), user=replace(USER, minutes=30)),
            "user dl1 in account dl-lab-a allows 30",
        ),
    ],
)
def test_the_qos_of_a_partition_limits_all_jobs_of_the_run(known: Limits, message: str) -> None:
    per_node = {"gres/gpu": 4, "cpu": 4}
    assert message in refusal(Request(SIZES, per_node=per_node, minutes=180, partitions=("dl",)), known)


@pytest.mark.parametrize(("over", "allowed"), [(frozenset({"high"}), True), (frozenset[str](), False)])
def test_which_qos_goes_first_is_said_by_overpartqos(over: frozenset[str], allowed: bool) -> None:
    """The partition's allows two hours, the job's own four."""
    part = Bounds("QoS part", minutes=120)
    known = with_part(part, high=replace(HIGH, minutes=240), over_partitions=over)
    request = Request(NodeSizes.between(2, 2), minutes=180, partitions=("dl",))
    if allowed:
        check_allowance(request, known)
        assert "QoS high allows 240" in refusal(replace(request, minutes=300), known)
    else:
        assert "QoS part allows 120" in refusal(request, known)
    assert replica_minutes(request, known) == 120, "elastic has none of its own"


@pytest.mark.parametrize(("over", "allowed"), [(frozenset({"high"}), True), (frozenset[str](), False)])
@pytest.mark.parametrize("part", [Bounds("QoS part", user={"node": 2}), Bounds("QoS part", submitted=2)])
def test_what_goes_before_the_partition_s_goes_before_all_of_it_in_a_run_without_replicas(
    part: Bounds, over: frozenset[str], allowed: bool
) -> None:
    """Nothing of the run is `elastic`, for which the partition's would hold."""
    known = with_part(part, high=replace(HIGH, user={"node": 16}, submitted=50), over_partitions=over)
    request = Request(NodeSizes.between(8, 8), partitions=("dl",), runs=3)
    if allowed:
        check_allowance(request, known)
    else:
        assert "QoS part may have 2" in refusal(request, known)
    assert "QoS part may have 2" in refusal(replace(request, sizes=SIZES), known)


def test_a_lower_limit_of_the_job_s_qos_is_none_where_the_partition_s_goes_first() -> None:
    known = with_part(Bounds("QoS part", minutes=240), high=replace(HIGH, minutes=60))
    check_allowance(Request(NodeSizes.between(2, 2), minutes=180, partitions=("dl",)), known)


def test_the_qos_of_a_partition_may_be_written_in_capitals() -> None:
    known = limits(
        partitions={"dl": PartitionTimes(None, None, qos="PART")},
        qos={"high": HIGH, "elastic": ELASTIC, "part": Bounds("QoS part", group={"node": 7})},
    )
    assert "QoS part may have 7 (GrpTRES node)" in refusal(Request(SIZES, partitions=("dl",)), known)


def test_of_several_partitions_only_a_qos_of_all_of_them_limits() -> None:
    request = Request(NodeSizes.between(7, 7), minutes=60, partitions=("dl", "any"))
    for other, refused in (("part", True), ("", False)):
        known = with_part(partitions={**IN_PART, "any": PartitionTimes(None, None, qos=other)})
        if refused:
            assert "QoS part may have 6" in refusal(request, known)
        else:
            check_allowance(request, known)


def test_a_qos_that_may_go_beyond_its_partition_s_time_does():
    request = Request(SIZES, minutes=2880, partitions=("dl",))
    assert "partition dl allows 1440" in refusal(request, limits())
    check_allowance(request, limits(beyond_times=frozenset({"high"})))


def test_where_partitions_preempt_the_time_to_leave_is_theirs():
    partitions = {"dl": PartitionTimes(None, None, grace=120), "cv": PartitionTimes(None, None, grace=30)}
    known = limits(preempt_type="partition_prio", partitions=partitions)
    request = Request(SIZES, graceful_s=100, graceful_place="p.yaml line 6", partitions=("dl",))
    check_allowance(request, known)
    both = replace(request, partitions=("dl", "cv"))
    assert "leaves a preempted job 30 s (GraceTime of partition cv); give 30 or less" in refusal(both, known)


ARRAY = Request(SIZES, runs=100, at_once=100)


@pytest.mark.parametrize(
    ("request_", "known", "message"),
    [
        (
            ARRAY,
            limits(user=replace(USER, submitted=50)),
            "--array has 100 runs, so 100 baseline jobs and 300 replica jobs at a time, and user dl1 in "
            "account "
            "dl-lab-a may have 50 jobs in the queue; submit at most 12 runs at a time",
        ),
        (
            replace(ARRAY, at_once=10),
            limits(account=replace(ACCOUNT, group_submitted=129)),
            "100 baseline jobs and 30 replica jobs at a time, and account dl may have 129 jobs in the queue; "
            "take larger steps (--nodes MIN:MAX:STEP), or fewer runs at a time (%N)",
        ),
        (
            ARRAY,
            limits(elastic=replace(ELASTIC, submitted=299)),
            "QoS elastic may have 299 jobs in the queue",
        ),
        (
            replace(ARRAY, minutes=60, per_node={"gres/gpu": 1}, partitions=("dl",)),
            limits(account=replace(ACCOUNT, used={"gres/gpu": (5999, 0.0)})),
            "--nodes 1,2,4,8 in an array of 100 runs will use at least 100 GPU hours in 60 minutes, with 1 "
            "node each, and account dl has 99.98 of 99.98 left (GrpTRESMins gres/gpu); submit fewer runs, "
            "give --time 59 or less, charge another account",
        ),
    ],
)
def test_of_an_array_all_runs_count(request_, known, message):
    assert message in refusal(request_, known)


def test_of_an_array_only_those_that_go_on_at_once_have_replicas_and_what_waits_is_allowed():
    ten = replace(ARRAY, at_once=10)
    check_allowance(ten, limits(user=replace(USER, submitted=130), elastic=replace(ELASTIC, submitted=30)))
    check_allowance(ten, limits(user=replace(USER, jobs=4), account=replace(ACCOUNT, group_jobs=4)))


FIXED = Request(NodeSizes((2,), "2:2"), runs=100, at_once=100)


@pytest.mark.parametrize("elastic", [ELASTIC, replace(ELASTIC, submitted=1000)])
@pytest.mark.parametrize("request_", [FIXED, ARRAY])
def test_of_an_array_the_baseline_jobs_are_counted_as_their_own_qos_says(
    request_: Request, elastic: Bounds
) -> None:
    """As slurmctld: an association's MaxSubmitJobs is for jobs whose QoS has none."""
    few, many = replace(USER, submitted=50), replace(USER, submitted=1000)
    with_own = limits(user=few, high=replace(HIGH, submitted=100), elastic=elastic)
    if request_ is FIXED or elastic.submitted:
        check_allowance(request_, with_own)
    else:
        assert "user dl1 in account dl-lab-a may have 50 jobs" in refusal(request_, with_own)
    assert "user dl1 in account dl-lab-a may have 50" in refusal(request_, limits(user=few, elastic=elastic))
    too_few = limits(user=many, high=replace(HIGH, submitted=99), elastic=elastic)
    assert "QoS high may have 99 jobs in the queue; submit at most 99 runs at a time" in refusal(
        request_, too_few
    )


@pytest.mark.parametrize(
    ("request_", "known", "remedy"),
    [
        (
            FIXED,
            limits(user=replace(USER, jobs=0)),
            "take another QoS (--qos) or account (--account), or ask",
        ),
        (FIXED, limits(high=replace(HIGH, submitted=0)), "take another QoS (--qos) or account (--account)"),
        (Request(SIZES), limits(account=replace(ACCOUNT, group_jobs=1)), "fix the size: --nodes N:N"),
        (Request(SIZES), limits(elastic=replace(ELASTIC, jobs=0)), "fix the size: --nodes N:N"),
        (Request(SIZES), limits(elastic=replace(ELASTIC, jobs=1)), "take larger steps"),
        (
            replace(ARRAY, at_once=1),
            limits(elastic=replace(ELASTIC, submitted=0)),
            "fix the size: --nodes N:N",
        ),
        (
            replace(ARRAY, at_once=1),
            limits(elastic=replace(ELASTIC, submitted=2)),
            "take larger steps: --nodes",
        ),
        (replace(ARRAY, at_once=2), limits(user=replace(USER, submitted=50)), "submit at most 44 runs at a"),
    ],
)
def test_what_is_said_to_do_about_too_many_jobs_can_be_done(
    request_: Request, known: Limits, remedy: str
) -> None:
    assert f"; {remedy}" in refusal(request_, known)


BUDGET = replace(ACCOUNT, used={"gres/gpu": (6000, 1200.0)})


def test_a_baseline_that_costs_more_than_is_left_is_refused_with_what_can_be_paid():
    """4,800 of 6,000 GPU minutes are left: 2 nodes of 4 GPUs may have them for 600 minutes."""
    sizes = NodeSizes.between(2, 8)
    request = Request(sizes, per_node={"gres/gpu": 4}, minutes=601, partitions=("dl",))
    assert refusal(request, limits(account=BUDGET)) == (
        "--nodes 2:8 will use at least 80.13 GPU hours in 601 minutes, with 2 nodes, and account dl has 80 "
        "of 100 left (GrpTRESMins gres/gpu); give --time 600 or less, charge another account (--account), or "
        "ask for more or a time after the next reset (--begin)"
    )
    check_allowance(replace(request, minutes=600), limits(account=BUDGET))
    check_allowance(replace(request, begins_later=True), limits(account=BUDGET))
    never = refusal(replace(request, begins_later=True, minutes=751), limits(account=BUDGET))
    assert "has 100 of 100 left (GrpTRESMins gres/gpu); give --time 750 or less" in never
    assert never.endswith("or ask for more")


def test_limits_of_one_type_of_gpu_hold_for_those_who_name_it():
    known = limits(account=replace(ACCOUNT, group={"gres/gpu": 64, "gres/gpu:a100": 20}))
    plain = Request(SIZES, per_node={"gres/gpu": 4})
    check_allowance(plain, known)
    check_allowance(replace(plain, per_node={"gres/gpu": 4, "gres/gpu:a10g": 4}), known)
    assert refusal(replace(plain, per_node={"gres/gpu": 4, "gres/gpu:a100": 4}), known) == (
        "--nodes 1,2,4,8 takes up to 32 a100 GPUs and account dl may have 20 (GrpTRES gres/gpu:a100); ask "
        "for at most 4 nodes"
    )


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (limits(high=replace(HIGH, job_minutes={"gres/gpu": 4800})), "QoS high allows a job 80"),
        (
            limits(user=replace(USER, job_minutes={"gres/gpu": 4800})),
            "user dl1 in account dl-lab-a allows a job 80",
        ),
        (
            limits(
                partitions={"dl": PartitionTimes(None, None, qos="part")},
                qos={
                    "high": replace(HIGH, job_minutes={"gres/gpu": 9000}),
                    "elastic": ELASTIC,
                    "part": Bounds("QoS part", job_minutes={"gres/gpu": 4800}),
                },
            ),
            "QoS part allows a job 80",
        ),
    ],
)
def test_what_one_job_may_use_to_its_time_limit_is_compared_with_the_baseline(known: Limits, said: str):
    request = Request(NodeSizes.between(2, 8), per_node={"gres/gpu": 4}, minutes=601, partitions=("dl",))
    told = refusal(request, known)
    assert told.startswith(
        "the baseline job of --nodes 2:8 may use at least 80.13 GPU hours in 601 minutes, and "
    )
    assert told.endswith(
        f"{said} (MaxTRESMins gres/gpu); give --time 600 or less, or ask for a smaller minimum or a higher "
        "limit"
    )
    check_allowance(replace(request, minutes=600), known)
    every = frozenset({"high", "part"})  # how long it will be is not known: Slurm makes the limit fit
    check_allowance(replace(request, minutes=None), replace(known, denying=every))
    assert refusal(replace(request, minutes=None), known) == (
        "the baseline job of --nodes 2:8: without --time it has no limit before it starts (the partition has "
        f"no DefaultTime), and {said} (MaxTRESMins gres/gpu); give --time 600 or less, or ask for a smaller "
        "minimum or a higher limit"
    )


@pytest.mark.parametrize("unlimited", [False, True])
@pytest.mark.parametrize("safe", [False, True])
def test_a_job_without_a_limit_never_fits_into_what_is_left(safe: bool, unlimited: bool) -> None:
    """Seen of Slurm 26.05: without `--time` and DefaultTime such jobs wait for ever, whatever MaxTime is."""
    request = Request(SIZES, partitions=("dl",), unlimited=unlimited)
    known = limits(
        account=replace(ACCOUNT, used={"node": (6000, 0.0)}),
        partitions={"dl": PartitionTimes(None, None)},
        enforced=frozenset({"associations", "limits", "qos", *(["safe"] if safe else [])}),
    )
    if not safe:  # Slurm starts it, and ends it when all is used up
        return check_allowance(request, known)
    assert refusal(request, known).endswith(
        ", and account dl has 100 of 100 left (GrpTRESMins node); give --time 6000 or less, charge another "
        "account (--account), or ask for more"
    )
    check_allowance(replace(request, unlimited=False), replace(known, denying=frozenset({"high"})))
    by_wall = limits(user=replace(USER, minutes=60), account=known.accounts[0].bounds[1])
    check_allowance(replace(request, unlimited=False), replace(by_wall, enforced=known.enforced))
    return None


def test_what_a_job_of_the_qos_may_use_takes_the_place_of_the_association_s():
    mine = replace(USER, job_minutes={"gres/gpu": 10, "node": 2000})
    known = limits(user=mine, high=replace(HIGH, job_minutes={"gres/gpu": 4800}))
    request = Request(NodeSizes.between(2, 8), per_node={"gres/gpu": 4}, minutes=600, partitions=("dl",))
    check_allowance(request, known)
    assert "(MaxTRESMins node)" in refusal(replace(request, per_node={}, minutes=1001), limits(user=mine))


@pytest.mark.parametrize(
    ("known", "owner", "remedy"),
    [
        (limits(high=replace(HIGH, used=BUDGET.used)), "QoS high", "take another QoS (--qos)"),
        (
            limits(
                partitions={"dl": PartitionTimes(None, None, qos="part")},
                qos={"high": HIGH, "elastic": ELASTIC, "part": Bounds("QoS part", used=BUDGET.used)},
            ),
            "QoS part",
            "take another partition (-p)",
        ),
    ],
)
def test_what_is_left_for_a_qos_counts_as_an_account_s_does(known: Limits, owner: str, remedy: str):
    request = Request(NodeSizes.between(2, 8), per_node={"gres/gpu": 4}, minutes=601, partitions=("dl",))
    assert refusal(request, known).endswith(
        f"{owner} has 80 of 100 left (GrpTRESMins gres/gpu); give --time 600 or less, {remedy}, or ask for "
        "more or a time after the next reset (--begin)"
    )
    check_allowance(replace(request, minutes=600), known)


def test_what_a_qos_says_of_minutes_is_not_asked_of_the_account():
    """TRES by TRES, as Slurm does it."""
    request = Request(NodeSizes.between(2, 8), per_node={"gres/gpu": 4}, minutes=600, partitions=("dl",))
    spent = replace(ACCOUNT, used={"gres/gpu": (1, 1.0)}, running={"gres/gpu": 1})
    assert "account dl" in refusal(request, limits(account=spent))
    other = {"used": {"node": (9000, 0.0)}, "running": {"node": 9000}}
    assert "account dl" in refusal(request, limits(account=spent, high=replace(HIGH, **other)))
    own = {"used": {"gres/gpu": (9000, 0.0)}, "running": {"gres/gpu": 9000}}
    check_allowance(request, limits(account=spent, high=replace(HIGH, **own)))


def test_time_that_all_jobs_may_have_together_is_a_budget_of_every_run():
    request = Request(SIZES, minutes=61, partitions=("dl",), runs=3)
    known = limits(account=replace(ACCOUNT, used={"wall": (600, 420.0)}))
    assert refusal(request, known) == (
        "--nodes 1,2,4,8 in an array of 3 runs will use at least 3.05 hours in 61 minutes, with 1 node each, "
        "and account dl has 3 of 10 left (GrpWall); submit fewer runs, give --time 60 or less, charge "
        "another account (--account), or ask for more or a time after the next reset (--begin)"
    )
    check_allowance(replace(request, minutes=60), known)


@pytest.mark.parametrize(
    ("known", "owner"),
    [
        (limits(high=replace(HIGH, running={"gres/gpu": 4800})), "QoS high"),
        (limits(account=replace(ACCOUNT, running={"gres/gpu": 4800})), "account dl"),
    ],
)
def test_what_no_job_may_have_left_is_refused_and_what_waits_for_others_is_not(known: Limits, owner: str):
    request = Request(NodeSizes.between(2, 8), per_node={"gres/gpu": 4}, minutes=601, partitions=("dl",))
    assert refusal(request, known) == (
        "the baseline job of --nodes 2:8 may use at least 80.13 GPU hours in 601 minutes, and "
        f"{owner} allows jobs that run 80 until their ends (GrpTRESRunMins gres/gpu); give --time 600 or "
        "less, or ask for a smaller minimum or a higher limit"
    )
    check_allowance(replace(request, minutes=600, runs=9), known)


@pytest.mark.parametrize(
    ("factor", "asked", "safe", "most"),
    [
        (1.0, False, True, 480),
        (2.0, False, False, 240),
        (2.0, False, True, 480),
        (2.0, True, True, 240),
        (0.5, False, False, 960),
        (0.5, False, True, 480),  # with `safe` Slurm asks before the start, without UsageFactorSafe for all
        (0.5, True, True, 960),
        (0.0, True, True, 9000),
        (0.0, False, True, 600),  # nothing is used, so the whole limit is left
        (0.0, False, False, 9000),
    ],
)
def test_minutes_count_as_the_qos_has_them_counted(factor: float, asked: bool, safe: bool, most: int):
    known = limits(
        account=replace(ACCOUNT, used={"node": (600, 120.0)}),
        partitions={"dl": PartitionTimes(None, None)},
        enforced=frozenset({"associations", "limits", "qos", *(["safe"] if safe else [])}),
        usage_factors={"high": factor},
        asked_with_factor=frozenset({"high"} if asked else ()),
    )
    check_allowance(Request(SIZES, minutes=most, partitions=("dl",)), known)
    if most < 9000:
        said = refusal(Request(SIZES, minutes=most + 1, partitions=("dl",)), known)
        assert f"give --time {most} or less" in said
        counted = factor if asked or not safe else 1.0
        assert ("minutes, with" if counted == 1 else f"minutes (UsageFactor {counted:g}), with") in said


@pytest.mark.parametrize(
    ("safe", "asked", "most"), [(True, True, 9000), (True, False, 480), (False, False, 9000)]
)
def test_time_is_used_up_also_for_a_qos_of_which_nothing_counts(safe: bool, asked: bool, most: int) -> None:
    """slurmctld takes what was used as 0 for TRES, and not for GrpWall."""
    known = limits(
        account=replace(ACCOUNT, used={"wall": (600, 120.0)}),
        partitions={"dl": PartitionTimes(None, None)},
        enforced=frozenset({"associations", "limits", "qos", *(["safe"] if safe else [])}),
        usage_factors={"high": 0.0},
        asked_with_factor=frozenset({"high"} if asked else ()),
    )
    request = Request(SIZES, minutes=most, partitions=("dl",))
    check_allowance(request, known)
    for owner, used in ((USER, {"wall": (600, 600.0)}), (ACCOUNT, {"node": (0, 0.0)})):
        spent = Account("dl-lab-a", True, ("high", "elastic"), (replace(owner, used=used),))
        assert f"{owner.of} has 0 of" in refusal(request, replace(known, accounts=(spent,)))


def test_what_a_qos_says_of_a_group_is_not_asked_of_the_account():
    """Nor of how many jobs there may be; of jobs whose QoS says nothing it is, and all count."""
    account = replace(ACCOUNT, group={"node": 4}, group_jobs=3)
    own = {"elastic": replace(ELASTIC, group={"node": 7}, group_jobs=3)}
    assert "account dl may have 3" in refusal(Request(SIZES), limits(account=replace(account, group={})))
    check_allowance(Request(SIZES), limits(account=account, **own))
    fixed, high = Request(NodeSizes((5,), "5:5")), replace(HIGH, group={"node": 5})
    assert "account dl may have 4 (GrpTRES node)" in refusal(fixed, limits(account=account))
    check_allowance(fixed, limits(account=account, high=high))
    grown = Request(NodeSizes((3, 5), "3,5"))
    assert "account dl may have 4 (GrpTRES node); ask for at most 3 nodes" in refusal(
        grown, limits(account=account, high=high)
    )


def test_a_budget_that_is_used_up_names_no_time():
    known = limits(account=replace(ACCOUNT, used={"node": (100, 130.0)}))
    told = refusal(Request(SIZES, minutes=1, partitions=("dl",)), known)
    assert "account dl has 0 of 1.667 left (GrpTRESMins node); charge another account" in told


def test_the_partition_s_usual_time_counts_when_none_is_asked_for():
    request = Request(SIZES, per_node={"gres/gpu": 1}, partitions=("dl",))
    times = {"dl": PartitionTimes(4801, None)}
    assert "80.02 GPU hours in 4801 minutes" in refusal(request, limits(account=BUDGET, partitions=times))
    check_allowance(request, limits(account=BUDGET))  # it has none: how long it will be is not known


def test_billing_is_what_the_heaviest_of_the_known_counts_at_least():
    """It is the sum of all, or the largest of them (PriorityFlags=MAX_TRES)."""
    known = limits(
        account=replace(ACCOUNT, used={"billing": (1000, 0.0)}),
        partitions={"dl": PartitionTimes(None, None, {"cpu": 1.0, "gres/gpu": 10.0})},
    )
    request = Request(SIZES, per_node={"cpu": 8, "gres/gpu": 2}, minutes=50, partitions=("dl",))
    check_allowance(request, known)
    assert "will use at least 17 billing hours in 51 minutes" in refusal(replace(request, minutes=51), known)
    part = replace(known, partitions={"dl": PartitionTimes(None, None, {"cpu": 2.55})})
    check_allowance(replace(request, minutes=50), part)  # a job's billing is a whole number: 20 of 20.4
    assert "17 billing hours in 51 minutes" in refusal(replace(request, minutes=51), part)


@given(
    st.sets(st.integers(1, 60), min_size=2, max_size=8).map(sorted),
    st.integers(1, 8),
    st.integers(0, 500),
)
def test_the_size_that_a_refusal_names_is_allowed_and_the_largest(totals, gpus, limit):
    known = limits(account=replace(ACCOUNT, group={"gres/gpu": limit}))
    request = Request(NodeSizes(tuple(totals)), per_node={"gres/gpu": gpus})
    fitting = [total for total in totals if total * gpus <= limit]
    if totals[-1] * gpus <= limit:
        check_allowance(request, known)
    elif fitting:
        assert refusal(request, known).endswith(f"ask for at most {fitting[-1]} nodes")
    else:
        assert "ask for a smaller minimum" in refusal(request, known)


BY_DEFAULT = (Account("dl", True, ("elastic", "high")),)


@pytest.mark.parametrize(
    ("asked", "known", "said"),
    [
        ("Elastic", None, "--qos=Elastic is for the replica jobs of elastic runs"),
        ("high,elastic", limits(), "--qos=high,elastic is for the replica jobs"),
        (None, limits(accounts=BY_DEFAULT), "your default QoS is elastic, which is for the replica jobs"),
    ],
)
def test_a_run_does_not_take_its_replicas_qos_itself(
    asked: str | None, known: Limits | None, said: str
) -> None:
    """Its coordinator knows replica jobs by that QoS: it would end its own baseline job as one too many."""
    with pytest.raises(SubmitError) as caught:
        check_own_qos(Request(SIZES, qos=asked), known)
    assert str(caught.value).startswith(said)
    assert "give the QoS that your other jobs have" in str(caught.value)


def test_any_other_qos_is_a_runs_own() -> None:
    for asked in ("high", None):
        check_own_qos(Request(SIZES, qos=asked), limits())
        check_own_qos(Request(SIZES, qos=asked), None)

"""Whether the partitions of a run can ever have its jobs, known before anything is submitted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpctools.errors import SubmitError
from hpctools.slurm.limits import Account, Limits
from hpctools.slurm.types import Partition
from hpctools.submit.nodes import NodeSizes
from hpctools.submit.partitions import check_partitions, only_from
from hpctools.submit.request import Request

OPEN = Partition("dl", total_nodes=8, is_default=True)
REQUEST = Request(NodeSizes((1, 2, 4, 8), "1,2,4,8"))
LIMITS = Limits(
    user="dl1",
    enforced=frozenset({"associations", "qos"}),
    accounts=(Account("dl-lab-a", True, ("medium", "high", "elastic"), above=("dl", "root")),),
    qos={},
    grace={},
    partitions={},
)


def refusal(*partitions: Partition, request: Request = REQUEST, limits: Limits | None = LIMITS) -> str:
    asked = None if partitions[0].is_default else ",".join(each.name for each in partitions)
    with pytest.raises(SubmitError) as caught:
        check_partitions(request, asked, partitions, limits)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (
            replace(OPEN, allow_qos=("medium", "high")),
            "partition dl is not for jobs of QoS elastic, with which replica jobs run (AllowQos, DenyQos); "
            "ask "
            "its operators to allow elastic there, name another partition (--partition), or fix the size: "
            "--nodes N:N",
        ),
        (replace(OPEN, deny_qos=("elastic",)), "partition dl is not for jobs of QoS elastic"),
        (
            replace(OPEN, allow_qos=("high", "elastic")),
            "partition dl is not for jobs of QoS medium (AllowQos, DenyQos); give --qos one of: high",
        ),
        (
            replace(OPEN, allow_qos=("critical", "High", "elastic")),
            "partition dl is not for jobs of QoS medium (AllowQos, DenyQos); give --qos one of: High",
        ),
        (
            replace(OPEN, allow_qos=("critical", "elastic")),
            "(AllowQos, DenyQos); take another partition (-p), or ask for one of these QoS: critical",
        ),
        (replace(OPEN, deny_qos=("medium",)), "give another --qos, or another partition"),
        (
            replace(OPEN, allow_accounts=("cv", "nlp")),
            "partition dl is not for account dl-lab-a (AllowAccounts, DenyAccounts); charge another account",
        ),
        (replace(OPEN, deny_accounts=("dl-lab-a",)), "partition dl is not for account dl-lab-a"),
    ],
)
def test_whom_a_partition_is_not_for_is_refused_with_the_remedy(partition: Partition, message: str) -> None:
    assert message in refusal(partition)


@pytest.mark.parametrize(
    ("partition", "limits"),
    [
        (replace(OPEN, allow_accounts=("dl",), allow_qos=("medium", "elastic")), LIMITS),
        (replace(OPEN, allow_qos=("Medium", "Elastic")), LIMITS),
        (replace(OPEN, allow_accounts=("DL-Lab-A",)), LIMITS),
        (replace(OPEN, allow_accounts=("DL",)), LIMITS),
        # A list of who may takes the place of one of who may not (slurm.conf(5)).
        (replace(OPEN, allow_qos=("medium", "elastic"), deny_qos=("elastic",)), LIMITS),
        (replace(OPEN, allow_qos=("high",), allow_accounts=("cv",)), replace(LIMITS, enforced=frozenset())),
        (replace(OPEN, allow_qos=("high",), allow_accounts=("cv",)), None),
    ],
)
def test_whom_it_may_be_for_is_not_refused(partition: Partition, limits: Limits | None) -> None:
    check_partitions(REQUEST, None, [partition], limits)


def test_a_qos_in_capitals_is_the_same_one() -> None:
    fixed = Request(NodeSizes((4,)), qos="HIGH")
    check_partitions(fixed, None, [replace(OPEN, allow_qos=("high",))], LIMITS)
    assert "partition dl is not for jobs of QoS HIGH" in refusal(
        replace(OPEN, deny_qos=("high",)), request=fixed
    )


def test_one_of_several_partitions_is_enough() -> None:
    other = replace(OPEN, name="all", is_default=False)
    narrow = replace(other, name="dl", allow_qos=("medium",))
    check_partitions(REQUEST, "dl,all", [narrow, other], LIMITS)
    assert "partition dl,any is not for jobs of QoS elastic" in refusal(narrow, replace(narrow, name="any"))


def test_a_run_may_have_the_nodes_of_all_partitions_and_each_of_its_jobs_those_of_one() -> None:
    some = replace(OPEN, name="a", is_default=False, total_nodes=3, nodes=("n1", "n2", "n3"))
    others = replace(some, name="b", total_nodes=2, nodes=("n3", "n4"))
    check_partitions(Request(NodeSizes.between(1, 4)), "a,b", [some, others], None)
    assert refusal(some, others, request=Request(NodeSizes.between(1, 5))) == (
        "--nodes 1:5: partition a,b has only 4 nodes; ask for at most 4, or for another partition (see "
        "`sinfo -s`)"
    )
    apart = replace(others, nodes=("n4", "n5"))
    for sizes in ((4,), (1, 5)):
        assert refusal(some, apart, request=Request(NodeSizes(sizes, "so"))) == (
            "--nodes so: a job has all of its nodes in one partition, and a has only 3; take a minimum and "
            "steps of at most 3 nodes"
        )


def test_an_empty_name_among_partitions_is_passed_over_as_by_sbatch() -> None:
    check_partitions(REQUEST, "dl,", [OPEN], LIMITS)
    with pytest.raises(SubmitError, match="there is no partition cv;"):
        check_partitions(REQUEST, ",cv", [OPEN], LIMITS)


def test_a_run_of_one_size_needs_no_elastic_qos_there() -> None:
    check_partitions(Request(NodeSizes((4,))), None, [replace(OPEN, allow_qos=("medium",))], LIMITS)


def test_no_replica_job_has_more_nodes_than_a_job_may_have_unless_its_qos_goes_beyond() -> None:
    small = replace(OPEN, max_nodes=3)
    assert refusal(small) == (
        "--nodes 1,2,4,8: a job in partition dl may have at most 3 nodes (MaxNodes), and a replica job of "
        "this "
        "run 4; take smaller steps: at most 3 nodes from one size to the next"
    )
    check_partitions(REQUEST, None, [replace(small, max_nodes=4)], LIMITS)
    check_partitions(REQUEST, None, [small], replace(LIMITS, beyond_partitions=frozenset({"elastic"})))
    fixed = Request(NodeSizes((4,)))
    assert "lower the minimum to 3" in refusal(small, request=fixed)
    check_partitions(fixed, None, [small], replace(LIMITS, beyond_partitions=frozenset({"medium"})))


def test_no_job_has_fewer_nodes_than_a_job_must_have_unless_its_qos_may() -> None:
    """Slurm keeps them in the queue for ever (PartitionNodeLimit)."""
    wide = replace(OPEN, min_nodes=2)
    assert refusal(wide) == (
        "--nodes 1,2,4,8: a job in partition dl has at least 2 nodes (MinNodes); raise the minimum to 2, or "
        "take another partition (-p)"
    )
    larger = Request(NodeSizes((2, 3, 8), "2,3,8"))
    assert refusal(wide, request=larger) == (
        "--nodes 2,3,8: a job in partition dl has at least 2 nodes (MinNodes), and a replica job of this run "
        "1; take larger steps: at least 2 nodes from one size to the next"
    )
    check_partitions(larger, None, [wide], replace(LIMITS, below_partitions=frozenset({"elastic"})))
    check_partitions(Request(NodeSizes((2, 4))), None, [wide], LIMITS)
    check_partitions(Request(NodeSizes((2,))), None, [wide], LIMITS)
    check_partitions(
        Request(NodeSizes((1,))), None, [wide], replace(LIMITS, below_partitions=frozenset({"medium"}))
    )
    check_partitions(REQUEST, "dl,all", [wide, replace(OPEN, name="all", is_default=False)], LIMITS)


def test_where_it_is_not_known_which_qos_a_job_gets_none_is_refused() -> None:
    unknown = replace(LIMITS.accounts[0], qos=("debug", "medium", "elastic"), has_default_qos=False)
    narrow = replace(OPEN, allow_qos=("medium", "elastic"))
    check_partitions(REQUEST, None, [narrow], replace(LIMITS, accounts=(unknown,)))
    known = replace(unknown, has_default_qos=True)
    assert "is not for jobs of QoS debug" in refusal(narrow, limits=replace(LIMITS, accounts=(known,)))


CLOSED = replace(OPEN, nodes=("gpu-1", "gpu-2"), submit_hosts=("login-1", "login-2", "login-3", "login-4"))


def test_partitions_to_which_a_run_cannot_submit_are_told() -> None:
    """sbatch takes the baseline job on the login node, and every replica job is refused on the run's own."""
    assert only_from(REQUEST, None, [CLOSED]) == (
        "the run will stay at its smallest size: partition dl takes jobs from login-1, login-2, login-3 and "
        "1 more only (AllocNodes), and the run's own nodes submit its replica jobs; ask the operators to add "
        "these nodes"
    )


@pytest.mark.parametrize(
    ("request_", "partitions"),
    [
        (REQUEST, [replace(CLOSED, submit_hosts=())]),
        (REQUEST, [replace(CLOSED, submit_hosts=("login-1", "gpu-2"))]),
        (Request(NodeSizes.between(4, 4)), [CLOSED]),
        (REQUEST, [CLOSED, replace(OPEN, name="other", is_default=True)]),
    ],
    ids=["all hosts", "nodes of its own", "no replicas", "another partition"],
)
def test_nothing_is_told_where_replicas_can_be_submitted(
    request_: Request, partitions: list[Partition]
) -> None:
    assert only_from(request_, None, partitions) is None

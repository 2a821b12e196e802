"""Who may take the nodes of a baseline job, told before it is submitted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpctools.slurm.limits import Account, Limits, PartitionTimes, Precedence
from hpctools.submit.nodes import NodeSizes
from hpctools.submit.preemption import any_replica_first, short_grace, takers_of, who_may_preempt
from hpctools.submit.request import Request

PREEMPTS = {
    "critical": frozenset({"low", "elastic"}),
    "high": frozenset({"low"}),
    **dict.fromkeys(("low", "medium"), frozenset[str]()),
}
LIMITS = Limits(
    user="dl1",
    enforced=frozenset({"qos"}),
    accounts=(Account("dl", True, ("low", "critical", "elastic", "high", "medium")),),
    qos={},
    grace={},
    partitions={},
    preempt_type="qos",
    precedence=Precedence(PREEMPTS, {"low": "requeue"}),
)
REQUEST = Request(NodeSizes.between(1, 4), partitions=("dl",))


def test_a_qos_that_yields_to_others_is_told_with_those_that_do_not() -> None:
    """Also the account's default one, which nobody has named."""
    told = who_may_preempt(REQUEST, LIMITS)
    assert told == who_may_preempt(replace(REQUEST, qos="low"), LIMITS)
    assert told == who_may_preempt(replace(REQUEST, qos="LOW", account="DL"), LIMITS)
    assert told == (
        "the baseline job, which should stay, may be preempted: its QoS low yields to critical, high; give "
        "it "
        "one that nobody takes: --qos=critical or high or medium"
    )
    assert who_may_preempt(replace(REQUEST, qos="medium"), LIMITS) is None


def test_the_replicas_own_qos_is_never_named_as_one_that_stays() -> None:
    """hp-submit refuses it for a baseline job, also where nobody takes replicas."""
    few = Precedence({"high": frozenset({"low"})})
    told = who_may_preempt(REQUEST, replace(LIMITS, precedence=few))
    assert told is not None
    assert told.endswith("give it one that nobody takes: --qos=critical or high or medium")


def test_who_has_no_other_qos_is_told_to_ask_for_one() -> None:
    only = replace(LIMITS, accounts=(Account("dl", True, ("low", "elastic")),))
    assert (told := who_may_preempt(REQUEST, only)) is not None
    assert told.endswith("its QoS low yields to critical, high; ask for one that stays")


@pytest.mark.parametrize("kind", ["", "none", "partition_prio"])
def test_where_nobody_is_preempted_by_qos_nothing_is_told(kind: str) -> None:
    assert who_may_preempt(REQUEST, replace(LIMITS, preempt_type=kind)) is None


def test_a_qos_whose_jobs_are_never_taken_is_safe() -> None:
    off = replace(LIMITS, precedence=Precedence(PREEMPTS, {"low": "off"}))
    assert who_may_preempt(REQUEST, off) is None


@pytest.mark.parametrize(
    ("own", "other", "takes"), [(("requeue", 1), 2, True), (("requeue", 2), 2, False), (("off", 1), 2, False)]
)
def test_by_partition_those_of_a_higher_tier_take_from_one_that_does_not_say_off(
    own: tuple[str, int], other: int, takes: bool
) -> None:
    mode, tier = own
    partitions = {
        "dl": PartitionTimes(None, None, tier=tier, mode=mode),
        "urgent": PartitionTimes(None, None, tier=other),
    }
    told = who_may_preempt(REQUEST, replace(LIMITS, preempt_type="partition_prio", partitions=partitions))
    assert (told is not None) == takes
    if told:
        assert "may be preempted by jobs of partition urgent (PriorityTier)" in told


def test_who_has_no_time_to_leave_is_told_before() -> None:
    """GraceTime is 0 unless a site has set it, and a script that would save has lost its work by then."""
    for grace in ({}, {"elastic": 0}):
        told = short_grace(REQUEST, replace(LIMITS, grace=grace))
        assert told == (
            "a replica that is preempted gets 0 s to leave (GraceTime of the QoS elastic): what it has not "
            "handed over by then is done again, and in restart mode all since the script's last save; ask "
            "the operators for 30 s: sacctmgr modify qos elastic set GraceTime=30"
        )


@pytest.mark.parametrize(
    ("request_", "limits"),
    [
        (REQUEST, replace(LIMITS, grace={"elastic": 30})),
        (replace(REQUEST, sizes=NodeSizes.between(4, 4)), LIMITS),
        (REQUEST, replace(LIMITS, preempt_type="none")),
        (REQUEST, replace(LIMITS, precedence=Precedence({"high": frozenset({"low"})}, {}))),
    ],
    ids=["enough", "no replicas", "no preemption", "nobody takes replicas"],
)
def test_who_has_time_or_is_not_preempted_is_told_nothing(request_: Request, limits: Limits) -> None:
    assert short_grace(request_, limits) is None


ANY = replace(LIMITS, youngest_first=False)
TIERS = {
    "dl": PartitionTimes(None, None, tier=1, mode="cancel"),
    "urgent": PartitionTimes(None, None, tier=2),
}


@pytest.mark.parametrize("limits", [ANY, replace(ANY, preempt_type="partition_prio", partitions=TIERS)])
def test_where_any_replica_may_go_first_that_is_told_with_the_setting(limits: Limits) -> None:
    assert (told := any_replica_first(REQUEST, limits)) is not None
    assert "does not preempt the youngest replica first" in told
    assert "PreemptParameters=youngest_first" in told
    assert any_replica_first(REQUEST, replace(limits, youngest_first=True)) is None


@pytest.mark.parametrize(
    ("sizes", "limits"),
    [
        ((1, 2), ANY),  # one replica job
        ((4,), ANY),
        ((1, 2, 4), replace(ANY, preempt_type="none")),
        ((1, 2, 4), replace(ANY, precedence=Precedence({"high": frozenset({"low"})}))),
        ((1, 2, 4), replace(ANY, preempt_type="partition_prio")),
    ],
)
def test_where_no_order_matters_nothing_is_told(sizes: tuple[int, ...], limits: Limits) -> None:
    assert any_replica_first(replace(REQUEST, sizes=NodeSizes(sizes)), limits) is None


def test_who_may_take_a_replica_s_node_goes_by_qos_or_is_not_known() -> None:
    assert takers_of(LIMITS) == ("critical",)
    assert takers_of(None) is None
    assert takers_of(replace(LIMITS, preempt_type="partition_prio")) is None

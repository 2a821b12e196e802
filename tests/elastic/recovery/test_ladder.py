"""From findings to actions: each cause's rungs, the counters, and what a second coordinator remembers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.elastic.actions import Fail, ReplaceNode, RestartAll, RestartWorker, RollBack
from hpctools.elastic.folder import Event
from hpctools.elastic.recovery.findings import Finding
from hpctools.elastic.recovery.ladder import Ladder
from hpctools.elastic.recovery.settings import (
    CAUSES,
    EXIT_CODES,
    EXIT_FULL_RESTARTS,
    EXIT_RETRIES,
    RUNGS,
    Recovery,
    RestartPolicy,
)
from hpctools.elastic.recovery.wiring import entries_of

CRASH = Finding("crash", ("restartProcess", "replaceNode", "restartAll", "fail"), "ended", "", "w1", "n1", 7)
NAN = Finding("nonFinite", ("rollBack", "restartAll", "fail"), "loss is nan", "loss", step=7)


def rungs(ladder: Ladder, *findings: Finding, every: float = 60.0, begin: float = 0.0) -> list[str]:
    decisions = [ladder.decide(begin + every * place, each) for place, each in enumerate(findings)]
    return [decision.rung if decision else "-" for decision in decisions]


def test_a_cause_climbs_and_ends_with_its_own_exit_code() -> None:
    ladder = Ladder(Recovery(restart=RestartPolicy(partial=9, full=9, offenders=0)))
    decisions = [ladder.decide(60.0 * time, CRASH) for time in range(4)]
    assert [decision.action for decision in decisions if decision] == [
        RestartWorker("w1", "crash at step 7: ended (time 1 in 3600 s)", EXIT_CODES["crash"]),
        ReplaceNode("n1", False, "crash at step 7: ended (time 2 in 3600 s)", "w1", EXIT_CODES["crash"]),
        RestartAll("crash at step 7: ended (time 3 in 3600 s)"),
        Fail(EXIT_CODES["crash"], "crash at step 7: ended (time 4 in 3600 s)"),
    ]


def test_roll_back_goes_before_the_step_that_is_to_blame_and_skips_it() -> None:
    decision = Ladder(Recovery(back=5, skip=True)).decide(0.0, NAN)
    assert decision is not None
    assert decision.action == RollBack(
        5, True, "nonFinite at step 7: loss is nan (time 1 in 3600 s)", blamed=7, code=EXIT_CODES["nonFinite"]
    )


@pytest.mark.parametrize("cause", ["crash", "hang", "stalledStep"])
def test_who_ends_or_stands_in_a_step_is_rolled_back_over_that_one(cause: str) -> None:
    """What is told of them is the steps completed before; the batch in work is the one that may be bad."""
    found = Finding(cause, ("rollBack",), "why", step=7)
    for step, blamed in ((7, 8), (None, None)):
        decision = Ladder(Recovery()).decide(0.0, replace(found, step=step))
        assert decision is not None
        assert isinstance(decision.action, RollBack)
        assert decision.action.blamed == blamed


def test_where_nothing_is_kept_to_roll_back_to_the_next_rung_is_taken_and_ends_with_its_own_code() -> None:
    """Only one that needs no worker's state is: what they have is what is to be given up."""
    why, spike = (
        "no state of at most 6 steps is kept",
        replace(NAN, cause="lossSpike", do=("rollBack", "fail")),
    )
    ladder = Ladder(Recovery())
    assert rungs(ladder, NAN) == ["rollBack"]
    assert ladder.instead_of_roll_back(1.0, NAN, why).action == RestartAll(
        f"nonFinite at step 7: loss is nan (rollBack cannot be done: {why})"
    )
    assert rungs(ladder, NAN, begin=60.0) == ["fail"], "both rungs are behind it"
    for finding in (spike, replace(spike, do=("rollBack", "replaceNode")), replace(spike, do=("rollBack",))):
        decision = Ladder(Recovery()).instead_of_roll_back(1.0, finding, why)
        assert isinstance(decision.action, Fail)
        assert decision.action.code == EXIT_CODES["lossSpike"]
    full = Ladder(Recovery(restart=RestartPolicy(full=0))).instead_of_roll_back(1.0, NAN, why)
    assert isinstance(full.action, Fail)
    assert full.action.code == EXIT_FULL_RESTARTS


def test_only_what_is_affected_each_node_begins_at_the_first_rung() -> None:
    ladder = Ladder(Recovery(restart=RestartPolicy(partial=9)))
    others = [replace(CRASH, worker=f"w{n}", node=f"n{n}") for n in range(5)]
    assert rungs(ladder, *others) == ["restartProcess"] * 5


def test_after_the_period_it_begins_anew() -> None:
    ladder = Ladder(Recovery(restart=RestartPolicy(period_s=100.0)))
    assert rungs(ladder, CRASH, CRASH, every=101.0) == ["restartProcess", "restartProcess"]


def test_a_rung_that_needs_a_culprit_is_passed_over() -> None:
    hang = Finding("hang", ("restartProcess", "replaceNode", "restartAll", "fail"), "no step")
    assert rungs(Ladder(Recovery()), hang) == ["restartAll"]
    nothing_left = Finding("slowRank", ("replaceNode",), "slow")
    assert rungs(Ladder(Recovery()), nothing_left) == ["fail"]


def test_too_many_partial_recoveries_restart_everything_and_then_it_fails() -> None:
    """numRestartBeforeFullJobRestart and maxFullJobRestarts, over different nodes."""
    ladder = Ladder(Recovery(restart=RestartPolicy(partial=2, full=1)))
    findings = [replace(CRASH, worker=f"w{n}", node=f"n{n}") for n in range(4)]
    decisions = [ladder.decide(60.0 * time, each) for time, each in enumerate(findings)]
    assert [each.rung for each in decisions if each] == [
        "restartProcess",
        "restartProcess",
        "restartAll",
        "fail",
    ]
    assert decisions[-1] is not None
    assert isinstance(decisions[-1].action, Fail)
    assert decisions[-1].action.code == EXIT_FULL_RESTARTS


def test_too_many_partial_recoveries_of_others_do_not_end_a_run_at_its_first_spike() -> None:
    """They have all of the run restarted; where a rule does not name that, it climbs its own rungs."""
    ladder = Ladder(Recovery(restart=RestartPolicy(partial=3)))
    crashes = [replace(CRASH, worker=f"w{n}", node=f"n{n}") for n in range(3)]
    spike = Finding("lossSpike", ("rollBack", "fail"), "loss is 9 after 2", step=7)
    assert rungs(ladder, *crashes, spike, spike) == [*["restartProcess"] * 3, "rollBack", "fail"]


def test_a_cause_without_a_harder_rung_is_not_made_harder() -> None:
    slow = Finding("slowRank", ("replaceNode", "excludeNode"), "slow", worker="w1", node="n1")
    ladder = Ladder(Recovery(restart=RestartPolicy(partial=1, offenders=5)))
    assert rungs(ladder, slow, replace(slow, node="n2"), replace(slow, node="n3")) == ["replaceNode"] * 3


def test_job_max_retry_count_ends_it() -> None:
    ladder = Ladder(Recovery(retries=2, restart=RestartPolicy(partial=99)))
    decisions = [ladder.decide(1e6 * time, CRASH) for time in range(3)]
    assert [each.rung for each in decisions if each] == ["restartProcess", "restartProcess", "fail"]
    assert decisions[-1] is not None
    assert decisions[-1].action == Fail(
        EXIT_RETRIES, "crash at step 7: ended (jobMaxRetryCount 2 is used up)"
    )


def test_repeat_offenders_are_excluded_but_not_more_than_allowed() -> None:
    ladder = Ladder(Recovery(restart=RestartPolicy(partial=99, offenders=1)))
    slow = Finding("slowRank", ("replaceNode",), "slow", worker="w1", node="n1")
    other = replace(slow, node="n2")
    decisions = [ladder.decide(60.0 * time, each) for time, each in enumerate([slow, slow, other, other])]
    assert [each.action.exclude for each in decisions if each and isinstance(each.action, ReplaceNode)] == [
        False,
        True,
        False,
        False,
    ]


def test_workers_that_end_together_are_one_recovery() -> None:
    ladder = Ladder(Recovery(restart=RestartPolicy(partial=2)))
    eight = [replace(CRASH, worker=f"w{n}") for n in range(8)]
    decisions = [ladder.decide(0.1 * place, each) for place, each in enumerate(eight)]
    assert [each.action for each in decisions if each and isinstance(each.action, RestartWorker)] == [
        each.action for each in decisions if each
    ]
    assert [each.counts for each in decisions if each] == [True] + [False] * 7
    later = ladder.decide(60.0, replace(CRASH, node="n2"))
    assert later is not None
    assert later.rung == "restartProcess", "only one of two was used up"


@pytest.mark.parametrize("order", ["1122", "1212", "1221"])
def test_ends_on_two_nodes_are_one_recovery_for_each_in_whichever_order_they_are_told(order: str) -> None:
    """Neither node is to blame for a second time."""
    ladder = Ladder(Recovery())
    four = [replace(CRASH, worker=f"b{n}.{place}.0", node=f"n{n}") for place, n in enumerate(order)]
    decisions = [ladder.decide(0.1 * place, each) for place, each in enumerate(four)]
    assert [each.rung for each in decisions if each] == ["restartProcess"] * 4
    assert sum(each.counts for each in decisions if each) == 2
    assert rungs(ladder, four[0], begin=60.0) != ["restartAll"], "two of three were used up"


def test_what_was_done_for_another_cause_meanwhile_parts_no_ends_that_belong_together() -> None:
    ladder, line = Ladder(Recovery()), Finding("log", ("replaceNode",), "a line", "Oom", "b3.0.0", "n3")
    others = [replace(CRASH, worker=f"b1.{n}.0") for n in range(2)]
    found = [others[0], line, others[1]]
    assert rungs(ladder, *found, every=0.1) == ["restartProcess", "replaceNode", "restartProcess"]


def test_a_worker_that_ends_again_at_once_did_not_end_together_with_itself() -> None:
    crash = replace(CRASH, do=("restartProcess", "restartProcess", "fail"))
    attempts = [replace(crash, worker=f"b1.0.{attempt}") for attempt in range(3)]
    assert rungs(Ladder(Recovery()), *attempts, every=1.0) == ["restartProcess", "restartProcess", "fail"]


def test_who_ended_just_before_all_were_restarted_is_started_again_too() -> None:
    ladder = Ladder(Recovery())
    crash = replace(CRASH, do=("restartAll", "fail"))
    other = replace(crash, worker="w2", node="n2")
    assert rungs(ladder, crash, other, every=0.5) == ["restartAll", "restartProcess"]
    assert rungs(ladder, crash, begin=60.0) == ["fail"], "it was one recovery"


def test_workers_of_several_nodes_that_raise_in_one_step_are_rolled_back_once() -> None:
    """A second time would leave out a batch that is sound, as the first one has changed the step in work."""
    ladder = Ladder(Recovery())
    crash = replace(CRASH, do=("rollBack", "restartAll", "fail"), step=None)
    three = [replace(crash, worker=f"r{n}.0.0", node=f"n{n}") for n in range(3)]
    decisions = [ladder.decide(0.1 * place, each) for place, each in enumerate(three)]
    assert [each.rung for each in decisions if each] == ["rollBack", "restartProcess", "restartProcess"]
    assert [each.counts for each in decisions if each] == [True, False, False]
    assert rungs(ladder, three[0], begin=60.0) == ["restartAll"], "it was one recovery"


def test_who_ends_on_a_node_that_may_be_kept_is_started_again() -> None:
    """On one that really goes the coordinator hears of no ends any more."""
    ladder = Ladder(Recovery())
    crash = replace(CRASH, do=("replaceNode",))
    assert rungs(ladder, crash, replace(crash, worker="w2"), every=0.5) == ["replaceNode", "restartProcess"]


def test_a_later_coordinator_goes_on_where_the_first_one_was() -> None:
    utc = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
    events = [
        Event(
            (utc - timedelta(seconds=seconds)).isoformat(timespec="milliseconds"),
            "finding",
            {"cause": "crash", "name": "", "worker": "w1", "node": "n1", "rung": rung, "counts": counts},
        )
        for seconds, rung, counts in (
            (4000, "restartProcess", True),
            (90, "restartProcess", True),
            (89, "restartProcess", False),
        )
    ]
    events += [Event("", "finding", {"counts": True}), Event(events[0].time, "resize", {"counts": True})]
    entries = entries_of(events, 10.0, utc)
    assert [(entry.at, entry.rung) for entry in entries] == [
        (pytest.approx(10.0 - 4000), "restartProcess"),
        (pytest.approx(10.0 - 90), "restartProcess"),
    ]
    ladder = Ladder(Recovery(restart=RestartPolicy(offenders=0)))
    ladder.restore(entries)
    assert rungs(ladder, CRASH, begin=10.0) == ["replaceNode"]


FINDINGS = st.builds(
    Finding,
    st.sampled_from(CAUSES),
    st.lists(st.sampled_from(RUNGS), min_size=1, max_size=4).map(tuple),
    st.just("why"),
    worker=st.sampled_from(["", "w1", "w2"]),
    node=st.sampled_from(["", "n1", "n2"]),
)
POLICIES = st.builds(
    Recovery,
    retries=st.integers(0, 30),
    restart=st.builds(
        RestartPolicy, st.floats(1, 1e5), st.integers(0, 5), st.integers(0, 3), st.integers(0, 2)
    ),
)


@given(POLICIES, st.lists(st.tuples(st.floats(5.1, 1e4), FINDINGS), min_size=40, max_size=40))
def test_whatever_happens_it_comes_to_an_end(policy: Recovery, happened: list[tuple[float, Finding]]) -> None:
    """Never more recoveries, full restarts or excluded nodes than the policy allows."""
    ladder, now = Ladder(policy), 0.0
    actions = []
    for seconds, finding in happened:
        now += seconds
        decision = ladder.decide(now, finding)
        assert decision is not None
        actions.append(decision.action)
        if isinstance(decision.action, Fail):
            break
    assert isinstance(actions[-1], Fail)
    assert len(actions) - 1 <= policy.retries
    assert sum(isinstance(each, RestartAll) for each in actions) <= policy.restart.full
    excluded = {each.node for each in actions if isinstance(each, ReplaceNode) and each.exclude}
    assert len(excluded) <= policy.restart.offenders
    assert all(each.worker for each in actions if isinstance(each, RestartWorker))
    assert all(each.node for each in actions if isinstance(each, ReplaceNode))

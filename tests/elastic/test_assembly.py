"""A new coordinator: whom it takes over as they are, and when it has to recover."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_membership import link_all, sent, started

from hpctools.elastic.assembly import (
    AGENT_SECONDS,
    ASSEMBLY_SECONDS,
    FIRST_SECONDS,
    MISSED_SECONDS,
    Returned,
)
from hpctools.elastic.effects import Adopted, Broken, Completed, WentBack
from hpctools.elastic.membership import STATE_IS_LOST, Membership
from hpctools.elastic.orders import Orders

TRAINING = Returned(ready=True, trains=True, generation=5, rank=0, world=2, completed=40, seen=5)


def taken_over(*workers: Returned, completed: bool = False) -> Membership:
    membership = Membership((1, 2, 3, 4))
    membership.take_over(5, now=0, completed=completed)
    for place, how in enumerate(workers):
        membership.returned("abcd"[place], (0, place), how, now=1)
    return membership


def come_into_force(membership: Membership, number: int, workers: str, rounds: int, now: float) -> None:
    """All park with as many rounds, link and train in the generation."""
    for worker in workers:
        membership.parked(worker, number, rounds, now=now)
    link_all(membership, number, workers)
    for worker in workers:
        membership.switched(worker, number, rounds, now=now)
    sent(membership)


def test_a_whole_generation_goes_on_undisturbed() -> None:
    membership = taken_over(TRAINING, replace(TRAINING, rank=1))
    assert membership.effects == [Adopted(5, ("a", "b"))]
    assert (membership.generation, membership.members, membership.phase) == (5, ("a", "b"), "running")
    membership.ready("r", (1, 9), now=2)
    membership.consider(now=9)
    assert {message["generation"] for _, message in sent(membership)} == {6}


@pytest.mark.parametrize(
    ("how", "wait"),
    [
        (replace(TRAINING, rank=1, pending=True, seen=6), ASSEMBLY_SECONDS),
        (replace(TRAINING, rank=1, broken=True), MISSED_SECONDS),
        (replace(TRAINING, rank=1, generation=6, seen=6), ASSEMBLY_SECONDS),
    ],
)
def test_an_order_that_may_be_under_way_is_cut_off_by_a_recovery(how: Returned, wait: float) -> None:
    membership = taken_over(TRAINING, how)
    assert sent(membership) == []
    assert membership.next_look() == 1 + wait
    membership.consider(now=1 + wait)
    forms = [message for _, message in sent(membership) if message["kind"] == "form"]
    assert {(each["generation"], each["recover"], each["world"]) for each in forms} == {
        (how.seen + 1, True, 2)
    }


MISSES = replace(TRAINING, world=3, broken=True)


def test_who_stands_still_without_one_that_is_gone_goes_on_soon() -> None:
    membership = taken_over(MISSES)
    membership.returned("b", (0, 1), replace(MISSES, rank=1, broken=False), now=1.2)
    membership.failed("b", 5, now=1.25)  # a moment later than `a`
    membership.consider(now=1.19 + MISSED_SECONDS)
    assert sent(membership) == []
    membership.consider(now=1.2 + MISSED_SECONDS)
    assert [(to, message["recover"]) for to, message in sent(membership)] == [("a", True), ("b", True)]


@pytest.mark.parametrize(
    "others",
    [
        [],  # one of three: who looks for the new coordinator may need longer
        [replace(MISSES, rank=1, pending=True, seen=6)],
        [replace(MISSES, rank=1, generation=6, seen=6)],
        [replace(MISSES, rank=1, broken=False)],
        [replace(MISSES, rank=1, shards=True)],  # without its shards all would go back
    ],
)
def test_where_more_may_be_on_its_way_the_others_are_waited_for(others: list[Returned]) -> None:
    first = MISSES if not others or others[0].broken else replace(MISSES, broken=False)
    membership = taken_over(first, *others)
    membership.consider(now=0.99 + ASSEMBLY_SECONDS)
    assert sent(membership) == []
    membership.consider(now=1 + ASSEMBLY_SECONDS)
    assert sent(membership) != []


def test_a_worker_that_runs_says_its_agent_is_waited_for_and_no_longer_than_before() -> None:
    membership = taken_over(MISSES, replace(MISSES, rank=1))
    membership.expect(1)
    membership.consider(now=0.99 + ASSEMBLY_SECONDS)
    assert sent(membership) == []
    for late in (1.3, 1.6, 1.9):  # each comes just before the others would go on
        membership.returned(f"late-{late}", (1, 0), replace(MISSES, trains=False, ready=True), now=late)
    membership.expect(0)
    membership.consider(now=1 + ASSEMBLY_SECONDS)
    assert sent(membership) != []


def test_steps_that_only_leavers_have_done_are_not_lost_to_one_that_comes_late() -> None:
    """It stays and they go, but it has missed what they have done meanwhile."""
    membership = taken_over(MISSES, replace(MISSES, rank=1))
    membership.leaving(["a", "b"], now=1.1)
    membership.consider(now=1 + MISSED_SECONDS)
    come_into_force(membership, 6, "ab", 40, now=2)
    membership.returned("r", (1, 0), replace(MISSES, rank=2), now=4)
    assert {to for to, message in sent(membership) if message["kind"] == "form"} == {"a", "b", "r"}
    for worker, completed in (("a", 50), ("b", 50), ("r", 40)):
        membership.parked(worker, 7, completed, now=4)
    link_all(membership, 7, "abr")
    assert dict(sent(membership))["r"]["receive_from"] is not None
    for worker in "abr":
        membership.switched(worker, 7, 51, now=4)
    assert [(to, message["kind"]) for to, message in sent(membership)] == [("r", "form")], "now they go"


def test_below_the_least_size_the_others_get_all_the_time_there_is() -> None:
    """To park all, and to save what they have, would take longer."""
    membership = Membership((3, 4))
    membership.take_over(5, now=0)
    for place in range(2):
        how = replace(MISSES, rank=place, world=4)
        membership.returned("ab"[place], (0, place), how, now=1)
    membership.consider(now=1 + MISSED_SECONDS)
    assert membership.effects == []
    membership.returned("c", (1, 0), replace(MISSES, rank=2, world=4), now=1.5)
    membership.consider(now=1.5 + MISSED_SECONDS)
    assert {to for to, message in sent(membership) if message["kind"] == "form"} == {"a", "b", "c"}


def test_one_that_does_not_come_is_done_without_and_one_that_comes_late_joins() -> None:
    membership = taken_over(TRAINING)
    membership.consider(now=1 + ASSEMBLY_SECONDS)
    assert [to for to, _ in sent(membership)] == ["a"]
    membership.returned("b", (0, 1), replace(TRAINING, rank=1, completed=41), now=3)
    assert [to for to, _ in sent(membership)] == ["a", "b"]
    membership.parked("a", 7, 40, now=3)
    membership.parked("b", 7, 41, now=3)
    link_all(membership, 7, "ab")
    commits = dict(sent(membership))
    assert commits["b"]["receive_from"] == 0, "the others may have gone on without it, another way"


def test_a_late_one_is_the_donor_when_nobody_else_has_a_state() -> None:
    membership = taken_over(replace(TRAINING, completed=-1, pending=True, trains=False))
    membership.consider(now=1 + ASSEMBLY_SECONDS)
    sent(membership)
    membership.returned("b", (0, 1), replace(TRAINING, rank=1, completed=41), now=3)
    membership.parked("a", 7, -1, now=3)
    membership.parked("b", 7, 41, now=3)
    link_all(membership, 7, "ab")
    assert dict(sent(membership))["a"]["receive_from"] == 1


def test_who_comes_without_an_agent_is_heard_when_agents_had_time_to_come() -> None:
    membership = taken_over()
    assert [membership.takes_anybody(now) for now in (AGENT_SECONDS - 0.1, AGENT_SECONDS)] == [False, True]
    membership.returned("a", (0, 0), replace(TRAINING, world=1), now=AGENT_SECONDS)
    assert membership.members == ("a",)
    assert not membership.takes_anybody(FIRST_SECONDS), "it is known who trains"
    assert AGENT_SECONDS + ASSEMBLY_SECONDS < FIRST_SECONDS


def test_when_nobody_comes_the_state_is_lost_but_not_too_soon() -> None:
    membership = taken_over()
    membership.consider(now=FIRST_SECONDS - 0.1)
    assert membership.effects == []
    membership.consider(now=FIRST_SECONDS)
    assert membership.effects == [Broken(STATE_IS_LOST, state_is_lost=True)]


def test_a_run_that_was_told_to_finish_finishes() -> None:
    membership = taken_over(
        replace(TRAINING, done=True, finished=True),
        replace(TRAINING, rank=1, done=True),
        Returned(ready=True),
    )
    membership.consider(now=1 + ASSEMBLY_SECONDS)
    assert [effect for effect in membership.effects if isinstance(effect, Completed)]
    assert sent(membership) == [
        ("a", {"kind": "finish"}),
        ("b", {"kind": "finish"}),
        ("c", {"kind": "stop"}),
    ]


def test_steps_that_were_done_before_are_known() -> None:
    membership = taken_over(replace(TRAINING, done=True), replace(TRAINING, rank=1, done=True))
    assert membership.effects[-1] == Completed(("a", "b"))


def test_a_last_step_that_the_coordinator_before_has_noted_is_not_done_again() -> None:
    """Though one of those who did it is gone, and the other has not been told."""
    membership = taken_over(replace(TRAINING, done=True), completed=True)
    membership.consider(now=1 + ASSEMBLY_SECONDS)
    assert membership.effects[-1] == Completed(("a",))
    assert sent(membership) == [("a", {"kind": "finish"})]


def test_after_the_last_step_who_ends_its_program_in_silence_is_waited_for() -> None:
    membership = taken_over(completed=True)
    membership.expect(1)
    membership.consider(now=10 * FIRST_SECONDS)
    assert membership.effects == []
    membership.expect(0)
    membership.consider(now=10 * FIRST_SECONDS + 0.1)
    assert membership.effects == [Broken(STATE_IS_LOST, state_is_lost=True)]


def test_one_that_has_left_is_released() -> None:
    membership = taken_over(replace(TRAINING, left=True, trains=False, pending=True))
    assert sent(membership) == [("a", {"kind": "release"})]


def test_a_hello_with_words_of_a_later_release_is_read() -> None:
    assert Returned.from_hello({"ready": True, "worker": "a", "mood": "good"}) == Returned(ready=True)


def test_a_roll_back_that_the_one_before_had_begun_is_finished() -> None:
    """Who was told of it would go back, and receive the newer state of who was not."""
    told = {"generation": 6, "to_step": 30, "skip": [31]}
    membership = taken_over(
        replace(TRAINING, pending=True, seen=6, roll_back=told), replace(TRAINING, rank=1)
    )
    membership.consider(now=1 + ASSEMBLY_SECONDS)
    forms = [message for _, message in sent(membership)]
    assert [each["roll_back"] for each in forms] == [{"to_step": 30, "skip": [31]}] * 2
    come_into_force(membership, 7, "ab", 30, now=3)
    membership.lost("b", now=4)
    assert all("roll_back" not in message for _, message in sent(membership)), (
        "once it is in force it is done"
    )


def test_a_roll_back_that_waits_for_workers_is_not_lost_with_its_coordinator() -> None:
    """Below the least size nobody can carry it out yet: who is parked keeps it for whoever comes."""
    before = started("ab", (2, 3))
    before.lost("b", now=5)
    before.roll_back(4, [5], now=6)
    told = Orders()
    for to, message in sent(before):
        assert to == "a"
        told.note(message)
    assert told.going_back(1) == [{"to_step": 4, "skip": [5]}], "it parks with its earlier state"
    membership = Membership((2, 3))
    membership.take_over(1, now=7)
    how = replace(TRAINING, generation=1, completed=4, **told.standing(1))
    membership.returned("a", (0, 0), how, now=7)
    membership.consider(now=7 + ASSEMBLY_SECONDS)
    assert [effect for effect in membership.effects if isinstance(effect, WentBack)] == [WentBack(4, 4)]
    membership.ready("c", (0, 1), now=9)
    forms = [message for _, message in sent(membership) if message["kind"] == "form"]
    assert [each["roll_back"] for each in forms] == [{"to_step": 4, "skip": [5]}] * 2


def test_of_several_roll_backs_the_newest_is_the_one_that_was_wanted() -> None:
    older, newer = ({"generation": g, "to_step": step, "skip": []} for g, step in ((6, 10), (7, 30)))
    first = replace(TRAINING, pending=True, seen=6, roll_back=older)
    membership = taken_over(first, replace(TRAINING, rank=1, pending=True, seen=7, roll_back=newer))
    membership.consider(now=1 + ASSEMBLY_SECONDS)
    assert {message["roll_back"]["to_step"] for _, message in sent(membership)} == {30}


def test_a_roll_back_that_others_have_trained_behind_is_over() -> None:
    """Who waits since has not heard of that, and would take thousands of steps from all others."""
    waits = Returned(ready=True, generation=2, completed=90, seen=5, pending=True)
    waits = replace(waits, roll_back={"generation": 3, "to_step": 100, "skip": [101]})
    membership = taken_over(waits, TRAINING)
    membership.consider(now=1 + ASSEMBLY_SECONDS)
    forms = [message for _, message in sent(membership) if message["kind"] == "form"]
    assert forms
    assert not any("roll_back" in each for each in forms)


def test_who_goes_on_with_a_roll_back_says_so_once() -> None:
    """Beats of before it must not count any more."""
    told = {"generation": 6, "to_step": 30, "skip": [31]}
    membership = taken_over(
        replace(TRAINING, pending=True, seen=6, roll_back=told), replace(TRAINING, rank=1)
    )
    membership.consider(now=1 + ASSEMBLY_SECONDS)
    assert [each for each in membership.effects if isinstance(each, WentBack)] == [WentBack(7, 30)]

"""Only allowed sizes train: who stands by, who waits, and what a recovery takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_membership import link_all, sent, started

from hpctools.elastic import selection
from hpctools.elastic.assembly import Returned
from hpctools.elastic.effects import Formed, Waiting
from hpctools.elastic.forming import Member
from hpctools.elastic.membership import Membership


def recovered(membership: Membership, generation: int, members: str, completed: int = 7) -> None:
    """All members of a recovery park, link and switch."""
    for worker in members:
        membership.parked(worker, generation, completed, now=0)
    link_all(membership, generation, members)
    for worker in members:
        membership.switched(worker, generation, completed, now=0)


def test_with_fewer_than_the_least_the_holder_parks_and_goes_on_with_a_newcomer() -> None:
    membership = started("ab", (2, 3))
    membership.lost("b", now=5)
    assert membership.effects[-1] == Waiting(have=1, need=2)
    assert sent(membership) == [("a", {"kind": "park", "generation": 2})]
    assert membership.phase == "waiting"
    membership.parked("a", 2, 7, now=5)
    membership.ready("c", (0, 1), now=9)
    assert sent(membership) == [
        (worker, {"kind": "form", "generation": 3, "rank": rank, "world": 2, "recover": True})
        for rank, worker in enumerate("ac")
    ]
    membership.parked("a", 3, 7, now=9)
    membership.parked("c", 3, -1, now=9)
    link_all(membership, 3, "ac")
    commits = dict(sent(membership))
    assert (commits["a"]["send_to"], commits["c"]["receive_from"]) == ([1], 0)


def below_the_least() -> Membership:
    """One of two has to go and two are the least: both wait with the state of seven steps."""
    membership = started("ab", (2, 3))
    membership.leaving(["b"], now=5)
    assert sorted(sent(membership)) == [(worker, {"kind": "park", "generation": 2}) for worker in "ab"]
    assert membership.phase == "waiting"
    return membership


def test_a_leaver_below_the_least_goes_once_the_state_is_saved_and_the_others_wait() -> None:
    membership = below_the_least()
    membership.saved(6)  # on an interval, and of the step before
    for worker in "ab":
        membership.parked(worker, 2, 7, now=5)
    assert sent(membership) == []
    membership.saved(7)
    assert sent(membership) == [("b", {"kind": "release"})]
    assert membership.is_last("a")


def test_a_leaver_below_the_least_goes_at_once_when_the_state_was_saved_before() -> None:
    membership = below_the_least()
    membership.saved(7)
    membership.parked("b", 2, 7, now=5)
    assert sent(membership) == [], "the other one may be further"
    membership.parked("a", 2, 7, now=5)
    assert sent(membership) == [("b", {"kind": "release"})]


def test_what_was_saved_before_a_roll_back_lets_nobody_go() -> None:
    membership = started("ab", (2, 3))
    membership.saved(9)
    membership.roll_back(4, [5], now=5)
    recovered(membership, 2, "ab", completed=4)
    membership.leaving(["b"], now=6)
    sent(membership)
    for worker in "ab":
        membership.parked(worker, 3, 5, now=6)
    assert sent(membership) == []


def test_what_was_saved_of_streams_counts_in_rounds_for_who_parks() -> None:
    """Two epochs have ended, each with a round that is no step: step 10 is what round 12 leads to."""
    membership = below_the_least()
    for worker in "ab":
        membership.parked(worker, 2, 12, now=6)
    membership.saved(10)
    assert sent(membership) == []
    membership.saved(10, rounds=12)
    assert sent(membership) == [("b", {"kind": "release"})], "the same state"


def test_what_was_saved_of_an_earlier_step_than_a_roll_back_may_be_void_as_well() -> None:
    """The state goes back to a snapshot of step 20, and the checkpoint of step 28 is of what was given up."""
    membership = started("ab", (2, 3))
    membership.saved(28)
    membership.roll_back(30, [31], now=5)
    recovered(membership, 2, "ab", completed=20)
    membership.leaving(["b"], now=6)
    sent(membership)
    for worker in "ab":
        membership.parked(worker, 3, 25, now=6)
    assert sent(membership) == []
    membership.saved(25)
    assert sent(membership) == [("b", {"kind": "release"})]


def test_a_state_in_memory_that_a_roll_back_leads_to_is_not_on_disk() -> None:
    """What was saved after it is void, and nobody says what there is before."""
    membership = started("ab", (2, 3))
    membership.saved(9)
    membership.roll_back(8, [9], now=5)
    recovered(membership, 2, "ab", completed=8)
    membership.leaving(["b"], now=6)
    sent(membership)
    for worker in "ab":
        membership.parked(worker, 3, 8, now=6)
    assert sent(membership) == []
    membership.saved(8)
    assert sent(membership) == [("b", {"kind": "release"})]


def test_when_the_others_vanish_the_leaver_below_the_least_still_has_the_state() -> None:
    """A node fails, and Slurm ends what is left of its job before the loss is noticed."""
    membership = below_the_least()
    membership.lost("a", now=6)
    assert sent(membership) == [("b", {"kind": "park", "generation": 3})]
    membership.parked("b", 3, 7, now=6)
    membership.saved(7)
    assert sent(membership) == [], "nobody else has it"
    for place, worker in enumerate("cd"):
        membership.ready(worker, (1, place), now=8)
    assert [to for to, message in sent(membership) if message["kind"] == "form"] == ["b", "c"]


def test_a_leaver_below_the_least_goes_as_soon_as_newcomers_make_a_size() -> None:
    membership = below_the_least()
    for worker in "ab":
        membership.parked(worker, 2, 7, now=5)
    membership.ready("c", (1, 9), now=6)
    released, *formed = sent(membership)
    assert released == ("b", {"kind": "release"})
    assert [(to, message["kind"]) for to, message in formed] == [("a", "form"), ("c", "form")]


def test_who_is_too_many_for_a_size_stands_by_and_is_first_when_it_is_needed_again() -> None:
    membership = started("abcd", (2, 4))
    membership.leaving(["b"], now=5)
    assert [to for to, _ in sent(membership)] == ["a", "c"]
    link_all(membership, 2, "ac")
    commits = dict(sent(membership))
    agreeing = {"kind": "commit", "generation": 2, "agree": True, "at": 0}
    assert commits["b"] == {**agreeing, "leave": True, "stay": False}
    assert commits["d"] == {**commits["b"], "stay": True}
    membership.left("b", now=5)
    membership.left("d", now=5, stays=True)
    membership.switched("a", 2, 9, now=5)
    membership.switched("c", 2, 9, now=5)
    assert sent(membership) == [("b", {"kind": "release"})]
    membership.lost("c", now=6)
    assert [to for to, message in sent(membership) if message["kind"] == "form"] == ["a", "d"]


def test_members_are_not_exchanged_for_others_of_lower_rank() -> None:
    membership = started("ad", (1, 2))
    membership.ready("b", (0, 1), now=5)
    membership.consider(now=60)
    assert sent(membership) == []
    assert membership.members == ("a", "d")


def test_one_that_vanished_is_waited_for_as_long_as_the_policy_says() -> None:
    membership = started("abc", (1, 2, 3), faulty_wait=10)
    membership.lost("c", now=5)
    assert Waiting(have=2, need=3) in membership.effects
    assert membership.next_look() == 15
    sent(membership)
    membership.consider(now=14)
    assert sent(membership) == []
    membership.consider(now=15)
    assert [to for to, message in sent(membership) if message["kind"] == "form"] == ["a", "b"]


def test_one_that_comes_back_in_time_keeps_the_size() -> None:
    membership = started("abc", (1, 2, 3), faulty_wait=10)
    membership.lost("c", now=5)
    sent(membership)
    membership.ready("c2", (1, 2), now=7)
    assert [to for to, message in sent(membership) if message["kind"] == "form"] == ["a", "b", "c2"]


def go_on(membership: Membership) -> list[str]:
    """Who forms the next generation."""
    return [to for to, message in sent(membership) if message["kind"] == "form"]


def test_one_that_was_known_to_go_is_not_waited_for() -> None:
    """Its grace time was over before its step was, say: nobody comes back from there."""
    membership = started("abc", (1, 2, 3), faulty_wait=300)
    membership.leaving(["c"], now=5)
    sent(membership)
    membership.lost("c", now=6)
    assert go_on(membership) == ["a", "b"]
    recovered(membership, 3, "ab")
    membership.lost("b", now=20)
    assert Waiting(have=1, need=2) in membership.effects, "that one may come back"


def test_with_one_that_vanished_others_that_have_to_go_are_not_waited_for() -> None:
    membership = started("abcd", (1, 2, 3, 4), faulty_wait=300)
    membership.leaving(["d"], now=5)
    membership.lost("c", now=5)
    assert membership.effects[-1] == Waiting(have=2, need=3)
    sent(membership)
    membership.leaving(["b"], now=6)
    assert membership.effects[-1] == Waiting(have=1, need=2)
    membership.ready("c2", (1, 2), now=7)
    assert go_on(membership) == ["a", "c2"]


def test_one_that_vanished_and_then_has_to_go_is_not_waited_for_any_more() -> None:
    membership = started("abc", (1, 2, 3), faulty_wait=300)
    membership.lost("c", now=5)
    assert go_on(membership) == []
    membership.leaving(["c"], now=6)
    assert go_on(membership) == ["a", "b"]


@pytest.mark.parametrize("first", ["a group that broke", "one that was known to go"])
def test_one_that_vanishes_while_the_others_recover_already_is_waited_for(first: str) -> None:
    membership = started("abcd", (1, 2, 3, 4), faulty_wait=10)
    if first == "a group that broke":  # others notice before us that its line did
        membership.leaving(["d"], now=5)
        membership.failed("a", 1, now=5)
    else:
        membership.leaving(["d"], now=4)
        membership.lost("d", now=5)
    sent(membership)
    membership.lost("c", now=6)
    assert Waiting(have=2, need=3) in membership.effects
    assert membership.next_look() == 16
    sent(membership)
    membership.lost("b", now=12)
    assert membership.next_look() == 16, "all are waited for together"


def test_who_would_make_no_larger_size_is_not_waited_for() -> None:
    membership = started("abcd", (1, 2, 4), faulty_wait=300)
    membership.leaving(["d"], now=5)
    sent(membership)
    membership.lost("c", now=5)
    assert go_on(membership) == ["a", "b"]


def test_the_last_holder_that_leaves_takes_newcomers_in_before_it_goes() -> None:
    membership = started("ab", (1, 2, 3))
    membership.leaving(["b"], now=5)
    membership.lost("a", now=5)
    assert [to for to, message in sent(membership) if message["kind"] == "form"][-1:] == ["b"]
    recovered(membership, 3, "b")
    sent(membership)
    membership.ready("r", (1, 9), now=8)
    assert [to for to, message in sent(membership) if message["kind"] == "form"] == ["b", "r"]
    recovered(membership, 4, "br")
    assert [effect.members for effect in membership.effects if isinstance(effect, Formed)] == [("b", "r")]
    assert [to for to, message in sent(membership) if message["kind"] == "form"] == ["r"]


def test_a_roll_back_parks_everybody_and_says_what_to_leave_out() -> None:
    membership = started("ab")
    membership.roll_back(4, [6], now=5)
    forms = [message for _, message in sent(membership)]
    assert all(message["roll_back"] == {"to_step": 4, "skip": [6]} for message in forms)
    recovered(membership, 2, "ab", completed=4)
    sent(membership)
    membership.lost("b", now=9)
    assert all("roll_back" not in message for _, message in sent(membership))


def standing_by() -> Membership:
    """Four train, one vanishes; two go on, as only two or four may, and the third has been called away."""
    membership = started("abcd", (2, 4))
    membership.lost("d", now=3)
    for worker in "abc":
        membership.parked(worker, 2, 9, now=3)
    link_all(membership, 2, "ab")
    for worker in "ab":
        membership.switched(worker, 2, 9, now=3)
    assert membership.members == ("a", "b")
    membership.effects.clear()
    return membership


def test_who_waits_for_workers_saves_again_what_a_roll_back_leads_to() -> None:
    """What was saved as it began to wait is void, and who has to go waits for what is not."""
    membership = below_the_least()
    membership.effects.clear()
    membership.roll_back(4, [5], now=6)
    assert [effect for effect in membership.effects if isinstance(effect, Waiting)] == [Waiting(1, 2)]
    sent(membership)
    for worker in "ab":
        membership.parked(worker, 3, 4, now=6)
    membership.saved(4)
    assert sent(membership) == [("b", {"kind": "release"})]


@pytest.mark.parametrize("taken_over", [False, True])
def test_who_stood_by_during_a_roll_back_gives_nobody_what_was_given_up(*, taken_over: bool) -> None:
    """It is the furthest when it is needed again, and has all that the others went back from."""
    membership = standing_by()
    membership.roll_back(4, [5], now=5)
    recovered(membership, 3, "ab", completed=4)
    if taken_over:
        membership = Membership((2, 4))
        membership.take_over(3, now=6)
        trains = Returned(ready=True, trains=True, generation=3, world=2, completed=4, seen=3)
        parked = replace(trains, generation=1, rank=2, world=4, completed=9, seen=2, pending=True)
        membership.returned("c", (0, 2), parked, now=6)
        for rank, worker in enumerate("ab"):
            membership.returned(worker, (0, rank), replace(trains, rank=rank), now=6)
        membership.consider(now=8)
    membership.lost("b", now=9)
    number = membership.last_number
    for worker, completed in (("a", 4), ("c", 9)):
        membership.parked(worker, number, completed, now=9)
    sent(membership)
    link_all(membership, number, "ac")
    commits = dict(sent(membership))
    assert (commits["a"]["receive_from"], commits["c"]["receive_from"]) == (None, 0)


def test_beginning_again_takes_whoever_comes() -> None:
    membership = started("ab", (2, 3))
    membership.begin_again()
    membership.ready("r", (1, 9), now=5)
    assert sent(membership) == []
    membership.ready("s", (1, 10), now=5)
    assert [(to, message["recover"]) for to, message in sent(membership)] == [("r", True), ("s", True)]


sizes = st.sets(st.integers(1, 9), min_size=1).map(lambda found: tuple(sorted(found)))


@given(sizes, st.integers(0, 9), st.integers(0, 9), st.integers(1, 9))
def test_a_recovery_has_an_allowed_size_and_somebody_with_the_state(
    allowed: tuple[int, ...], holding: int, new: int, need: int
) -> None:
    holders = [f"h{place}" for place in range(holding)]
    ready = {name: Member((1, place)) for place, name in enumerate(holders)}
    ready |= {f"n{place}": Member((0, place)) for place in range(new)}
    members = selection.recovering(ready, holders, allowed, need)
    assert len(members) in (0, *allowed)
    if members:
        assert set(members) & set(holders) or not holders
        alone = selection.largest_within(allowed, holding)
        assert len(members) == alone or alone < need, "newcomers are only taken when they are needed"

"""The coordinator's heart: scenarios as conversations, and random histories on a model of the workers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from worker_model import LAST_STEP, Simulation

from hpctools.elastic.assembly import Returned
from hpctools.elastic.effects import Broken, Decided, Formed, Send
from hpctools.elastic.membership import RECOVERIES, STATE_IS_LOST, Membership

Rounds = Mapping[str, int]
NOBODY_SAYS: Rounds = {}


def sent(membership: Membership) -> list[tuple[str, dict[str, Any]]]:
    """What was sent since the last look."""
    effects, membership.effects = membership.effects, []
    return [(effect.to, effect.message) for effect in effects if isinstance(effect, Send)]


def link_all(membership: Membership, generation: int, workers: str, rounds: Rounds = NOBODY_SAYS) -> None:
    for worker in workers:
        membership.linked(worker, generation, 0, rounds.get(worker))


def started(
    workers: Sequence[str] = "ab", sizes: Sequence[int] = (1, 2, 3, 4), faulty_wait: float = 0
) -> Membership:
    """Generation 1 of these workers is in force; the first ones are the baseline's."""
    membership = Membership(sizes, faulty_wait=faulty_wait)
    for place, worker in reversed(list(enumerate(workers))):
        membership.ready(worker, (0 if place < sizes[0] else 1, place), now=0)
    for worker in workers:
        membership.parked(worker, 1, -1, now=0)
    link_all(membership, 1, workers)
    for worker in workers:
        membership.switched(worker, 1, 0, now=0)
    assert membership.members == tuple(workers)
    membership.effects.clear()
    return membership


def test_who_takes_over_before_the_first_step_begins_with_another_baseline_than_the_first() -> None:
    """The first one's node has gone with the coordinator: nobody of it will ever be whole."""
    membership = Membership((1, 2))
    membership.take_over(0, now=0)
    membership.ready("b100.0.0", (1, 100, 0, 0, 0), now=6)
    membership.consider(now=7)
    assert ("b100.0.0", "form") in [(to, message["kind"]) for to, message in sent(membership)]


def test_before_anybody_trains_it_waits_for_as_many_workers_as_the_least() -> None:
    """A wait for nodes is nobody's fault: rules count it neither at first nor when all state is lost."""
    membership, again = Membership((2, 3)), started("ab", (2, 3))
    again.begin_again()
    for each in (membership, again):
        phases = [each.phase]
        for starting in (1, 2):
            each.expect(starting)
            phases.append(each.phase)
        assert phases == ["waiting", "waiting", "starting"]
        each.ready("c", (0, 0), now=0)
        each.expect(0)
        assert each.phase == "waiting", "the other one has gone"
        each.expect(1)
        assert each.phase == "starting"


def test_who_comes_after_the_last_step_is_sent_away() -> None:
    """A killed worker that is ready again when the others are through would wait for ever."""
    membership = started("ab")
    membership.lost("b", now=1)
    link_all(membership, 2, "a")
    membership.parked("a", 2, 30, now=1)
    membership.switched("a", 2, 30, now=1)
    membership.done("a")
    membership.effects.clear()
    membership.ready("c", (0, 1), now=2)
    assert sent(membership) == [("c", {"kind": "stop"})]


def test_first_generation_waits_for_the_whole_baseline_and_begins_with_the_first_workers_weights() -> None:
    membership = Membership((2, 3, 4))
    membership.ready("r", (1, 7), now=0)
    membership.ready("b", (0, 1), now=0)
    assert sent(membership) == []
    membership.ready("a", (0, 0), now=0)
    assert sent(membership) == [
        (worker, {"kind": "form", "generation": 1, "rank": rank, "world": 3, "recover": True})
        for rank, worker in enumerate("abr")
    ]
    membership.store("a", 1, "host", 9)
    assert sent(membership) == [
        (worker, {"kind": "link", "generation": 1, "host": "host", "port": 9}) for worker in "br"
    ]
    link_all(membership, 1, "abr")
    for worker in "abr":
        membership.parked(worker, 1, -1, now=0)
    commits = dict(sent(membership))
    assert (commits["a"]["send_to"], commits["a"]["receive_from"]) == ([1, 2], None)
    assert [commits[worker]["receive_from"] for worker in "br"] == [0, 0]


def test_growth_settles_links_beside_the_training_and_lets_joiners_in_at_the_switch() -> None:
    membership = started(sizes=range(1, 6))
    membership.ready("r", (1, 7), now=10)
    assert sent(membership) == []
    assert membership.next_look() == 10.5
    membership.ready("s", (1, 8), now=10.4)
    membership.consider(now=10.8)
    assert sent(membership) == []
    membership.consider(now=10.9)
    assert [to for to, _ in sent(membership)] == list("abrs")
    link_all(membership, 2, "abr")
    assert sent(membership) == []
    membership.linked("s", 2, now=11)
    agreeing = {"kind": "commit", "generation": 2, "agree": True, "at": 0}
    assert sorted(sent(membership), key=lambda each: each[0]) == [
        ("a", {**agreeing, "report": True, "send_to": [2], "moves": True}),
        ("b", {**agreeing, "report": False, "send_to": [3], "moves": True}),
    ]
    place = {"step": 40, "epoch": 1, "offset": 8}
    membership.switching("b", 2, place)
    membership.switching("a", 2, place)
    admitted = {"kind": "commit", "generation": 2, "agree": False, "place": place}
    assert sent(membership) == [
        ("r", {**admitted, "receive_from": 0}),
        ("s", {**admitted, "receive_from": 1}),
    ]
    for worker in "abrs":
        membership.switched(worker, 2, 40, now=12)
    assert membership.effects == [Formed(2, tuple("abrs"), tuple("ab"), 40, recovered=False, world_before=2)]


def growing(rate: float) -> Membership:
    """Two workers train so many steps a second, and a third one is linked."""
    membership = started(sizes=range(1, 6))
    membership.facts = replace(membership.facts, rates={2: rate, 5: 100.0})
    membership.ready("r", (1, 7), now=10)
    membership.consider(now=10.5)
    sent(membership)
    return membership


def test_those_that_join_hear_where_before_the_switch() -> None:
    membership = growing(rate=10.0)
    link_all(membership, 2, "abr")
    sent(membership)
    place = {"step": 41, "epoch": 1, "offset": 8}
    membership.placed(2, place)
    assert sent(membership) == [("r", {"kind": "prepare", "generation": 2, "place": place})]
    membership.placed(1, place)
    membership.switching("a", 2, place)
    for worker in "abr":
        membership.switched(worker, 2, 41, now=12)
    membership.effects.clear()
    membership.placed(2, place)
    assert sent(membership) == [], "of a generation that is not on its way"


@pytest.mark.parametrize(
    ("rounds", "at"),
    [
        ({"a": 40, "b": 41, "r": 0}, 42),
        ({"a": 41, "b": 41, "r": 77}, 42),
        ({"b": 41}, 42),
        ({"a": 0, "b": 0, "r": 0}, 1),
        ({"r": 9}, 0),
        ({}, 0),
    ],
)
@pytest.mark.parametrize(("rate", "lead"), [(0.99, 0), (1.0, 1), (5.0, 1), (5.1, 2), (30.0, 6)])
def test_all_that_train_are_told_after_which_step_they_switch(
    rounds: Rounds, at: int, rate: float, lead: int
) -> None:
    """The one in work when the furthest of them said how far it was, or with short steps 0.2 s later."""
    membership = growing(rate)
    link_all(membership, 2, "abr", rounds)
    assert [each["at"] for _, each in sent(membership)] == [at + lead if at else 0] * 2


@pytest.mark.parametrize(("rate", "at"), [(0.0, 8), (1.99, 8), (2.0, 9), (11.0, 11)])
@pytest.mark.parametrize("joins", [False, True])
def test_who_has_to_go_waits_for_short_steps_only(rate: float, at: int, joins: bool) -> None:
    membership = started("abc", sizes=range(1, 6))
    membership.facts = replace(membership.facts, rates={3: rate})
    if joins:
        membership.ready("r", (1, 7), now=10)
    membership.leaving(["c"], now=10.1)
    members = "abr" if joins else "ab"
    assert [to for to, _ in sent(membership)] == list(members)
    link_all(membership, 2, members, dict.fromkeys("abcr", 7))
    commits = dict(sent(membership))
    assert {name: each["at"] for name, each in commits.items()} == dict.fromkeys("abc", at)
    membership.placed(2, None)
    assert [to for to, each in sent(membership) if each["kind"] == "prepare"] == ["r"] * joins


def test_growth_waits_longer_for_workers_that_are_starting_but_not_for_ever() -> None:
    membership = started(sizes=range(1, 6))
    membership.expect(1)
    membership.ready("r", (1, 7), now=10)
    membership.consider(now=12.9)
    assert sent(membership) == []
    assert membership.next_look() == 13
    membership.ready("s", (1, 8), now=12.95)
    membership.consider(now=13.2)
    assert sent(membership) == [], "the second one settles, too"
    membership.consider(now=13.45)
    assert [to for to, _ in sent(membership)] == list("abrs")


def test_growth_waits_for_nobody_when_all_that_the_run_may_have_are_there() -> None:
    membership = started()
    membership.expect(2)
    membership.ready("r", (1, 7), now=10)
    assert sent(membership) == []
    membership.ready("s", (1, 8), now=10.1)
    assert [to for to, _ in sent(membership)] == list("abrs")


def test_each_growth_is_decided_and_told_also_the_same_one_again() -> None:
    """A run that becomes whole grows at once: no other verdict comes between two growths."""
    membership = started(sizes=(1, 2, 3))
    for generation, joiner in ((2, "r"), (4, "s")):
        membership.ready(joiner, (1, generation), now=10.0 * generation)
        decided = [each for each in membership.effects if isinstance(each, Decided)]
        assert [(each.world, each.possible, each.verdict.to) for each in decided] == [(2, 3, 3)]
        switch(membership, generation, "ab" + joiner)
        membership.leaving([joiner], now=10.0 * generation + 1)
        switch(membership, generation + 1, "ab")
        membership.left(joiner, now=10.0 * generation + 2)
    assert membership.members == ("a", "b")


def test_a_refusal_to_grow_is_over_when_those_that_it_was_about_have_gone() -> None:
    """It is told, once, and when others come what is decided about them."""
    membership = started()
    membership.expect(1)
    for turn, joiner in ((1.0, "r"), (2.0, "s")):
        membership.ready(joiner, (1, 7), now=10 * turn)
        membership.consider(now=10 * turn + 0.1)
        membership.lost(joiner, now=10 * turn + 0.2)
        membership.consider(now=10 * turn + 0.3)
        told = [each for each in membership.effects if isinstance(each, Decided)]
        assert [(each.world, each.possible, each.verdict.grow) for each in told] == [
            (2, 3, False),
            (2, 2, False),
        ]
        membership.effects.clear()


def switch(membership: Membership, generation: int, workers: str) -> None:
    link_all(membership, generation, workers)
    for worker in workers:
        membership.switched(worker, generation, generation, now=0)
    assert membership.members == tuple(workers)
    membership.effects.clear()


def test_shrink_does_not_wait_and_the_leaver_takes_part_until_the_switch() -> None:
    membership = started("abc")
    membership.leaving(["c"], now=20)
    assert [to for to, _ in sent(membership)] == ["a", "b"]
    link_all(membership, 2, "ab")
    commits = dict(sent(membership))
    agreeing = {"kind": "commit", "generation": 2, "agree": True, "at": 0}
    assert commits["c"] == {**agreeing, "leave": True, "stay": False}
    assert [commits[each]["moves"] for each in "ab"] == [False, False], "nobody receives the state"
    membership.left("c", now=20)
    for worker in "ab":
        membership.switched(worker, 2, 5, now=20)
    assert sent(membership) == [("c", {"kind": "release"})]


def test_leaver_that_never_took_part_is_released_at_once() -> None:
    membership = started()
    membership.ready("r", (1, 7), now=0)
    membership.leaving(["r"], now=0.1)
    assert sent(membership) == [("r", {"kind": "release"})]
    membership.consider(now=9)
    assert sent(membership) == []


def test_joiner_that_leaves_while_it_links_costs_nothing() -> None:
    membership = started()
    membership.ready("r", (1, 7), now=0)
    membership.consider(now=1)
    sent(membership)
    membership.lost("r", now=1)
    link_all(membership, 2, "ab")
    membership.consider(now=9)
    assert sent(membership) == []
    assert membership.members == ("a", "b")


def test_lost_member_makes_the_furthest_ones_donors() -> None:
    membership = started("abcd")
    membership.lost("d", now=0)
    assert all(message["recover"] for _, message in sent(membership))
    link_all(membership, 2, "abc")
    for worker, completed in zip("abc", (7, 8, 8), strict=True):
        membership.parked(worker, 2, completed, now=0)
    commits = dict(sent(membership))
    assert commits["a"]["receive_from"] == 1
    assert (commits["b"]["send_to"], commits["c"]["send_to"]) == ([0], [])
    assert (commits["b"]["receive_from"], commits["c"]["receive_from"]) == (None, None)
    assert all(commit["moves"] for commit in commits.values()), "also those that are not concerned take part"


def test_members_that_stand_at_the_same_step_move_nothing() -> None:
    membership = started("abc")
    membership.lost("c", now=0)
    link_all(membership, 2, "ab")
    for worker in "ab":
        membership.parked(worker, 2, 8, now=0)
    commits = [message for _, message in sent(membership) if message["kind"] == "commit"]
    assert [commit["moves"] for commit in commits] == [False, False]


def test_last_holder_of_the_state_is_known() -> None:
    membership = started("ab")
    assert not membership.is_last("a")
    membership.ready("r", (1, 7), now=0)
    membership.lost("b", now=0)
    assert membership.is_last("a")


def test_run_is_broken_when_only_newcomers_are_left() -> None:
    membership = started("a")
    membership.ready("r", (1, 7), now=0)
    membership.consider(now=1)
    sent(membership)
    membership.lost("a", now=1)
    assert membership.effects == [Broken(STATE_IS_LOST, state_is_lost=True)]


def test_who_has_just_received_the_state_is_asked_for_it_when_all_others_are_lost() -> None:
    """Who gave it is cut off, comes back, goes on alone, and dies."""
    membership = started("a", (1, 4))
    for place, worker in enumerate("bcd"):
        membership.ready(worker, (1, place), now=0)
    membership.consider(now=1)
    link_all(membership, 2, "abcd")
    membership.switching("a", 2)
    membership.lost("a", now=2)
    how = Returned(ready=True, trains=True, generation=1, world=1, completed=27, seen=2, pending=True)
    membership.returned("a", (0, 0), how, now=2)
    membership.effects.clear()
    membership.lost("a", now=3)
    assert not [effect for effect in membership.effects if isinstance(effect, Broken)]
    (number,) = {message["generation"] for _, message in sent(membership)}
    for worker, completed in (("b", 27), ("c", -1), ("d", -1)):
        membership.parked(worker, number, completed, now=3)
    link_all(membership, number, "b")
    assert [(to, message["kind"]) for to, message in sent(membership)] == [("b", "commit")]


def test_who_has_left_before_it_heard_that_it_is_needed_is_not_waited_for() -> None:
    """The one that was to go on dies in the same step: nobody would ever park, or begin again."""
    membership = started("ab")
    membership.leaving(["b"], now=1)
    link_all(membership, 2, "a")
    membership.switching("a", 2)
    membership.lost("a", now=2)
    assert ("b", "form") in [(to, message["kind"]) for to, message in sent(membership)]
    membership.left("b", now=2)
    assert membership.effects == [Broken(STATE_IS_LOST, state_is_lost=True)]


def test_who_was_asked_for_the_state_and_has_none_does_not_go_on_without() -> None:
    membership = started("a", (1, 2))
    membership.ready("b", (1, 0), now=0)
    membership.consider(now=1)
    link_all(membership, 2, "ab")
    membership.switching("a", 2)
    membership.lost("a", now=2)
    link_all(membership, 3, "b")
    membership.parked("b", 3, -1, now=2)
    assert membership.effects[-1] == Broken(STATE_IS_LOST, state_is_lost=True)


def test_messages_about_a_generation_that_was_given_up_are_ignored() -> None:
    membership = started("abc")
    membership.leaving(["c"], now=0)
    membership.lost("b", now=0)
    sent(membership)
    link_all(membership, 2, "ab")
    membership.parked("a", 2, 5, now=0)
    membership.switched("a", 2, 5, now=0)
    assert sent(membership) == []
    assert membership.generation == 1


def test_joiner_that_cannot_connect_is_given_up_after_three_attempts() -> None:
    membership = started()
    membership.ready("r", (1, 7), now=0)
    now = 1.0
    for generation in (2, 3, 4):
        membership.consider(now)
        assert "r" in [to for to, message in sent(membership) if message.get("generation") == generation]
        membership.link_failed("r", generation, now)
        now += 10
    assert sent(membership) == [("r", {"kind": "release"})]
    membership.consider(now)
    assert sent(membership) == []


def test_group_that_breaks_again_and_again_in_one_step_ends_the_run() -> None:
    """For example when two processes do not run the same program."""
    membership = started()
    for generation in range(1, RECOVERIES + 4):
        membership.failed("a", generation, now=0)
        for worker in "ab":
            membership.parked(worker, generation + 1, 7, now=0)
        link_all(membership, generation + 1, "ab")
        for worker in "ab":
            membership.switched(worker, generation + 1, 7 if generation > 1 else 6, now=0)
    assert membership.effects[-1] == Broken(f"the workers lost each other {RECOVERIES} times in step 7")


SIZES = ((1, 2, 3, 4, 5), (2, 3, 4, 5), (3, 4, 5), (1, 2, 4), (2, 4), (2,), (1, 4, 5))


def history(seed: int) -> Simulation:
    """A run with workers that come, leave and die at any moment, and coordinators that crash.

    Driven until nothing can happen any more.
    """
    dice = random.Random(seed)
    sizes = dice.choice(SIZES)
    simulation = Simulation(seed, sizes, faulty_wait=dice.choice((0.0, 0.0, 0.5)))
    for _ in range(sizes[0]):
        simulation.add(0)
    for _ in range(dice.randint(0, 12)):
        for _ in range(dice.randint(0, 60)):
            simulation.step()
        if simulation.broken or simulation.completed:
            return simulation
        disturb(simulation, dice)
    for _ in range(sizes[0]):
        simulation.add(0)  # a baseline worker that died is started again
    for _ in range(20_000):
        if simulation.broken or simulation.completed or not simulation.step():
            return simulation
    raise AssertionError(f"no end: {simulation.alive()}")


def disturb(simulation: Simulation, dice: random.Random) -> None:
    what = dice.choice(("add", "add", "restart", "kill", "leave", "crash", "line", "line"))
    alive = simulation.alive()
    if what == "crash":
        simulation.crash_coordinator()
    elif what in ("add", "restart"):
        simulation.add(1 if what == "add" else 0)
    elif alive:
        worker = dice.choice(alive)
        if what == "kill":
            simulation.kill(worker)
        elif what == "line":
            simulation.break_line(worker)
        elif worker.order[0] == 1:
            worker.say("leaving")
            worker.is_leaving = True


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**40))
@example(326)  # a line that breaks before the first generation, which was waited for for ever
@example(108846)  # who had left was needed by then, and waited for for ever
@example(8360)  # a line breaks and its worker dies, whose state another one has just received
def test_any_history_ends_with_the_training_complete(seed: int) -> None:
    """Unless nobody who may stay has the state; and never are two members of a group in different steps."""
    simulation = history(seed)
    if simulation.broken == STATE_IS_LOST:
        holders = [each for each in simulation.alive() if each.has_state and not each.is_leaving]
        assert holders == []
    elif not simulation.broken:  # else a loss was heard after many attempts to link, which take longer
        assert simulation.completed
        assert LAST_STEP in [each.completed for each in simulation.workers.values() if each.is_done]

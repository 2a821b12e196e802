"""All ranks see the event at the same call or nobody does, in whatever order things happen."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hpctools.elastic.restart.agreement import Agreement
from hpctools.elastic.restart.events import Slot

PER_NODE = 2


@dataclass
class Rank:
    """One process: asks, and waits where it was bound; `answers` is what it was told at each call."""

    slot: Slot
    answers: dict[int, bool] = field(default_factory=dict)
    asking: int = 0
    alive: bool = True

    def move(self) -> None:
        if not self.asking:
            self.asking = self.slot.ask()
            return
        answer = self.slot.answer(self.asking)
        if answer is not None:
            self.answers[self.asking] = answer
            self.asking = 0


class Model:
    """Agents that bind real slots, a coordinator with a real `Agreement`, and messages that take their time.

    Args:
        lockstep: ranks are at most one call apart, as a collective in each step makes them.
    """

    def __init__(self, seed: int, nodes: int, folder: Path, *, lockstep: bool) -> None:
        self.random = random.Random(seed)
        self.lockstep = lockstep
        self.ranks = {
            f"n{node}": [Rank(Slot.create(folder / f"{seed}.{node}.{local}")) for local in range(PER_NODE)]
            for node in range(nodes)
        }
        self.to_agents: list[tuple[str, str, int]] = []
        self.to_coordinator: list[tuple[str, int, bool, int]] = []
        self.agreement: Agreement | None = None

    def everyone(self) -> list[Rank]:
        return [rank for ranks in self.ranks.values() for rank in ranks]

    def announce(self) -> None:
        self.agreement = Agreement(self.ranks)
        self.propose(0)

    def propose(self, calls: int) -> None:
        assert self.agreement is not None
        # What the coordinator believes of the ranks' speed may be wrong by far.
        call = self.agreement.propose(calls, self.random.choice([0.0, 5.0, 100.0]))
        self.to_agents += [(agent, "propose", call) for agent in self.ranks]

    def step(self) -> None:
        kinds = ["rank"] * 4 + ["agent"] * bool(self.to_agents) + ["coordinator"] * bool(self.to_coordinator)
        kind = self.random.choice(kinds)
        if kind == "rank":
            self.random.choice(self.movable()).move()
        elif kind == "agent":
            # Messages to one agent keep their order; those to different ones do not.
            agent = self.random.choice(self.to_agents)[0]
            message = next(each for each in self.to_agents if each[0] == agent)
            self.to_agents.remove(message)
            self.obey(*message)
        else:
            message = self.to_coordinator.pop(self.random.randrange(len(self.to_coordinator)))
            self.hear(*message)

    def movable(self) -> list[Rank]:
        """Ranks that no collective holds back."""
        done = {id(rank): len(rank.answers) for rank in self.everyone()}
        least = min(done.values())
        return [
            rank for rank in self.everyone() if not self.lockstep or done[id(rank)] == least or rank.asking
        ]

    def obey(self, agent: str, what: str, call: int) -> None:
        ranks = self.ranks[agent]
        if what == "propose":
            bound = all([rank.slot.propose(call) for rank in ranks])  # noqa: C419
            calls = max(rank.slot.count().calls for rank in ranks)
            self.to_coordinator.append((agent, call, bound, calls))
        else:
            for rank in ranks:
                rank.slot.commit(call)

    def hear(self, agent: str, call: int, bound: bool, calls: int) -> None:
        agreement = self.agreement
        assert agreement is not None
        was = agreement.committed
        if agreement.answered(agent, call, bound=bound):
            self.propose(calls)
        elif agreement.committed and not was:
            self.to_agents += [(each, "commit", agreement.call) for each in self.ranks]

    def close(self) -> None:
        for rank in self.everyone():
            rank.slot.close()


def first_true(rank: Rank) -> int | None:
    return min((call for call, answer in rank.answers.items() if answer), default=None)


@pytest.mark.parametrize("lockstep", [True, False])
@pytest.mark.parametrize("seed", range(60))
def test_all_ranks_see_the_event_at_the_same_call(seed: int, lockstep: bool, tmp_path: Path) -> None:
    model = Model(seed, 1 + seed % 4, tmp_path, lockstep=lockstep)
    for _ in range(model.random.randrange(200)):
        model.step()
    model.announce()
    for _ in range(20_000):
        model.step()
        if all(first_true(rank) for rank in model.everyone()):
            break
    told = {first_true(rank) for rank in model.everyone()}
    assert len(told) == 1
    assert None not in told
    (call,) = told
    assert call is not None
    for rank in model.everyone():
        assert all(answer == (at >= call) for at, answer in rank.answers.items())
    model.close()


@pytest.mark.parametrize("seed", range(20))
def test_nobody_sees_an_event_that_was_never_agreed(seed: int, tmp_path: Path) -> None:
    """A coordinator that vanishes before it commits: ranks wait at the call until a new one withdraws it."""
    model = Model(seed, 3, tmp_path, lockstep=True)
    model.announce()
    for _ in range(400):
        if model.agreement is not None and model.agreement.committed:
            return  # this order of events agreed at once: the other test's matter
        model.to_coordinator.clear()
        model.step()
    for rank in model.everyone():
        rank.slot.withdraw()
    for _ in range(2000):
        model.to_agents.clear()
        model.step()
    assert not any(answer for rank in model.everyone() for answer in rank.answers.values())
    assert min(len(rank.answers) for rank in model.everyone()) > 50, "nobody hangs"
    model.close()


def test_a_rank_that_is_there_already_is_not_bound(tmp_path: Path) -> None:
    slot = Slot.create(tmp_path / "slot")
    for _ in range(3):
        assert slot.answer(slot.ask()) is False
    assert not slot.propose(3)
    assert slot.propose(4)
    assert slot.answer(slot.ask()) is None, "it waits there"
    assert slot.propose(6), "a later call takes the earlier one's place"
    assert slot.answer(4) is False
    slot.commit(5)  # out of date
    assert slot.answer(slot.ask()) is False
    slot.commit(6)
    assert slot.answer(slot.ask()) is True
    assert not slot.propose(9), "what is agreed stays so"
    slot.withdraw()
    assert slot.answer(slot.ask()) is True
    slot.close()


def test_proposals_go_ahead_faster_the_more_often_they_come_too_late() -> None:
    agreement = Agreement(["a", "b"])
    calls = [agreement.propose(10, 20.0) for _ in range(4)]
    assert [later - earlier for earlier, later in zip([10, *calls], calls, strict=False)] == [3, 5, 9, 17]
    assert Agreement(["a"]).propose(7, 0.0) == 8


@pytest.mark.parametrize("rate", [0.05, 0.4, 2.0])
def test_where_steps_are_long_the_next_one_is_proposed(rate: float) -> None:
    """Of a preempted script's few seconds no step is to be lost; who is there already says no."""
    agreement = Agreement(["a", "b"])
    assert agreement.propose(7, rate) == 8
    assert [agreement.propose(7, rate) for _ in range(12)][-1] > 8 + 12, "it goes further in the end"


def test_answers_that_are_out_of_date_or_from_strangers_count_for_nothing() -> None:
    agreement = Agreement(["a", "b"])
    first = agreement.propose(0, 0.0)
    assert agreement.answered("a", first, bound=False)
    second = agreement.propose(3, 0.0)
    for member, call in (("a", first), ("c", second), ("b", second)):
        assert not agreement.answered(member, call, bound=True)
    assert not agreement.committed
    agreement.answered("a", second, bound=True)
    assert agreement.committed

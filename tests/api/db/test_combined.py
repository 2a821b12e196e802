"""Who waits for the same turn is served by one of them: each once, with its own answer, come what may."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.util import greenlet_spawn

from api.db.combined import MOST, Combined
from api.db.in_loop import awaited
from hpctools.errors import UnreachableError

SECONDS = 30.0
POISON, GONE, HANGS = -1, -2, -3


class Turns:
    """What serves: one turn at a time, in which nothing happens for some rounds of the loop."""

    def __init__(self, rounds: int = 3) -> None:
        self.turns: list[list[int]] = []
        self.done: Counter[int] = Counter()
        self._rounds = rounds
        self._lock = asyncio.Lock()

    def serve(self, those: Callable[[], Sequence[int]]) -> list[int]:
        awaited(self._lock.acquire())
        try:
            asked = list(those())
            self.turns.append(asked)
            for _ in range(self._rounds):
                awaited(asyncio.sleep(0))
            if HANGS in asked:
                awaited(asyncio.Event().wait())
            if POISON in asked:
                raise ValueError("poison")
            if GONE in asked:
                raise UnreachableError("the database is gone", "try again")
            self.done.update(asked)
            return [10 * each for each in asked]
        finally:
            self._lock.release()


def carried_out(work: Callable[[], Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work(), SECONDS))


def asking(combined: Combined[int, int], number: int, key: object = None) -> asyncio.Task[int]:
    return asyncio.ensure_future(greenlet_spawn(combined.served, key or number, number))


def test_who_comes_during_a_turn_shares_the_next_one() -> None:
    async def work() -> None:
        turns = Turns()
        combined = Combined(turns.serve, SECONDS)
        tasks = [asking(combined, 0)]
        while not turns.turns:
            await asyncio.sleep(0)
        tasks += [asking(combined, number) for number in range(1, 6)]
        assert await asyncio.gather(*tasks) == [0, 10, 20, 30, 40, 50]
        assert turns.turns == [[0], [1, 2, 3, 4, 5]]

    carried_out(work)


def test_not_too_many_at_a_time_and_each_key_once() -> None:
    async def work() -> None:
        turns = Turns()
        combined = Combined(turns.serve, SECONDS)
        tasks = [asking(combined, number, key="one") for number in (1, 2, 3)]
        tasks += [asking(combined, number) for number in range(100, 100 + MOST)]
        answers = await asyncio.gather(*tasks)
        assert answers == [10, 20, 30, *range(1000, 1000 + 10 * MOST, 10)]
        assert turns.turns == [[1], [2, *range(100, 99 + MOST)], [3, 99 + MOST]]

    carried_out(work)


def test_what_cannot_be_served_is_told_to_who_asked_alone() -> None:
    async def work() -> None:
        turns = Turns()
        combined = Combined(turns.serve, SECONDS)
        tasks = [asking(combined, number) for number in (0, 1, POISON, 2)]
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [answers[0], answers[1], answers[3]] == [0, 10, 20]
        assert isinstance(answers[2], ValueError)
        assert turns.done == {0: 1, 1: 1, 2: 1}
        assert await asking(combined, 7) == 70

    carried_out(work)


def test_that_nobody_answers_is_told_to_all_of_the_turn_at_once() -> None:
    async def work() -> None:
        turns = Turns()
        combined = Combined(turns.serve, SECONDS)
        tasks = [asking(combined, number) for number in (1, GONE, 2)]
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert answers[0] == 10
        assert all(isinstance(each, UnreachableError) for each in answers[1:])
        assert turns.turns == [[1], [GONE, 2]]
        assert await asking(combined, 7) == 70

    carried_out(work)


def test_that_no_connection_comes_is_told_to_all_who_wait() -> None:
    async def work() -> None:
        gone = asyncio.Event()

        def serve(those: Callable[[], Sequence[int]]) -> list[int]:
            if not gone.is_set():
                awaited(gone.wait())
                raise UnreachableError("no connection", "look at the database")
            return list(those())

        combined = Combined(serve, SECONDS)
        tasks = [asking(combined, number) for number in range(5)]
        for _ in range(5):
            await asyncio.sleep(0)
        gone.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(each) for each in answers] == ["no connection; look at the database"] * 5
        assert await asking(combined, 7) == 7

    carried_out(work)


def test_nobody_waits_for_ever_for_who_has_the_turn() -> None:
    async def work() -> None:
        turns = Turns()
        combined = Combined(turns.serve, 0.05)
        leader = asking(combined, HANGS)
        tasks = [asking(combined, number) for number in range(3)]
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert {str(each) for each in answers} == {"others have been at work for 0.05 s; try again"}
        assert not combined._queue
        leader.cancel()
        await asyncio.gather(leader, return_exceptions=True)
        assert await asking(combined, 7) == 70
        assert combined._leaders == 0

    carried_out(work)


@pytest.mark.parametrize("given_up", [0, 1, 2, 3])
@pytest.mark.parametrize("after", range(12))
def test_who_gives_up_keeps_nobody_from_an_answer(given_up: int, after: int) -> None:
    """Also who leads, in the middle of a turn, and who was just told to lead the next one."""

    async def work() -> None:
        turns = Turns()
        combined = Combined(turns.serve, SECONDS)
        tasks = [asking(combined, number, key=number // 2) for number in range(4)]
        for _ in range(after):
            await asyncio.sleep(0)
        was_done = tasks[given_up].done()
        tasks[given_up].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        for number, answer in enumerate(answers):
            if number != given_up or was_done:
                assert answer == 10 * number
        assert await asking(combined, 7) == 70
        assert not combined._queue
        assert combined._leaders == 0

    carried_out(work)


@given(
    st.lists(
        st.tuples(st.sampled_from(["ask", "poison", "cancel"]), st.integers(0, 4), st.integers(0, 3)),
        max_size=25,
    )
)
def test_everybody_gets_their_own_answer_and_is_served_once(course: list[tuple[str, int, int]]) -> None:
    async def work() -> None:
        turns = Turns(rounds=2)
        combined = Combined(turns.serve, SECONDS)
        tasks: dict[int, asyncio.Task[int]] = {}
        poisoned, cancelled = set(), set()
        for number, (what, which, rounds) in enumerate(course):
            if what == "ask":
                tasks[number] = asking(combined, number, key=("key", which))
            elif what == "poison":
                poisoned.add(number)
                tasks[number] = asking(combined, POISON, key=("key", which))
            elif (chosen := list(tasks)[which : which + 1]) and not tasks[chosen[0]].done():
                cancelled.add(chosen[0])
                tasks[chosen[0]].cancel()
            for _ in range(rounds):
                await asyncio.sleep(0)
        answers = await asyncio.gather(*tasks.values(), return_exceptions=True)
        for (number, _), answer in zip(tasks.items(), answers, strict=True):
            if number in cancelled:
                continue
            assert isinstance(answer, ValueError) if number in poisoned else answer == 10 * number
            assert number in poisoned or turns.done[number] == 1
        assert not combined._queue
        assert combined._leaders == 0

    carried_out(work)

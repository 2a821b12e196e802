"""An order to save is somebody's until it is answered, whoever is lost meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_acting import NAMES, SPEC, Scene, coordinated

from hpctools.elastic.effects import Formed, Waiting
from hpctools.elastic.folder import RunFolder

FIRST, SECOND, THIRD = NAMES
Look = Callable[[Callable[[Scene], None]], None]


@pytest.fixture
def scene(tmp_path: Path) -> Look:
    def look(check: Callable[[Scene], None]) -> None:
        async def act() -> None:
            check(Scene(RunFolder.create(tmp_path / "run", SPEC)))

        asyncio.run(act())

    return look


def shard(scene: Scene) -> None:
    for worker in scene.run.roster.workers.values():
        worker.shards = True


def lose(scene: Scene, worker: str) -> None:
    scene.connections.expel(scene.run.roster.workers[worker])


def orders(scene: Scene) -> dict[str, list[dict[str, Any]]]:
    """Those that each worker has got."""
    return {name: wire.said("save") for name, wire in scene.workers.items() if wire.said("save")}


def answer(scene: Scene, worker: str, order: dict[str, Any], kind: str = "saved") -> None:
    told = {"kind": kind, "step": 9, "why": order["why"], "order": order["order"]}
    scene.hearing.hear(scene.run.roster.workers[worker], told)


def form(scene: Scene, *workers: str) -> None:
    """The next generation is in force, of these."""
    membership = scene.run.membership
    number = membership.last_number
    for worker in workers:
        membership.parked(worker, number, 8, now=1)
    for worker in workers:
        membership.linked(worker, number, now=1)
    for worker in workers:
        membership.switched(worker, number, 8, now=1)
    assert membership.members == workers
    scene.run.saves.note_formed()


def test_what_a_lost_worker_had_to_save_is_saved_by_another_one(scene: Look) -> None:
    def check(made: Scene) -> None:
        made.run.order_save("cancelled", urgent=True, seconds=20.0, ends=True)
        lose(made, FIRST)
        given = orders(made)
        assert list(given) == [FIRST, SECOND]
        (one,), (other,) = given.values()
        assert 0.0 < other.pop("seconds") <= one.pop("seconds") == 20.0
        assert one == other, "the same order, with the time that is left"
        assert not made.run.saves.answered.is_set()
        answer(made, SECOND, other)
        assert made.run.saves.answered.is_set()
        told = [event.detail["worker"] for event in made.run.folder.events() if event.event == "save_ordered"]
        assert told == [FIRST, SECOND]

    scene(check)


@pytest.mark.parametrize("kind", ["saved", "unsaved"])
def test_what_is_answered_is_not_ordered_again(scene: Look, kind: str) -> None:
    def check(made: Scene) -> None:
        made.run.order_save("node is drained", urgent=False)
        answer(made, FIRST, orders(made)[FIRST][0], kind)
        lose(made, FIRST)
        assert list(orders(made)) == [FIRST]

    scene(check)


def test_what_could_not_be_saved_is_not_ordered_of_others(scene: Look) -> None:
    """Its place is the same for all; the one that failed tries again by itself."""

    def check(made: Scene) -> None:
        made.run.order_save("node is drained", urgent=False)
        failed = {"kind": "save_failed", "step": 9, "reason": "No space left on device"}
        made.hearing.hear(made.run.roster.workers[FIRST], {**failed, "why": "interval"})
        assert not made.run.saves.answered.is_set()
        made.hearing.hear(made.run.roster.workers[FIRST], {**failed, "why": "node is drained"})
        lose(made, FIRST)
        assert list(orders(made)) == [FIRST]

    scene(check)


@pytest.mark.parametrize("named", [False, True])
def test_that_an_earlier_order_failed_for_the_same_reason_is_no_answer(scene: Look, named: bool) -> None:
    """It was still being written when the next one was given, which may well be carried out."""

    def check(made: Scene) -> None:
        failed = {"kind": "save_failed", "why": "node is drained", "reason": "Input/output error"}
        first = made.run.roster.workers[FIRST]
        for known in (8, 9):
            made.run.journal.change(step=known)
            made.run.order_save("node is drained", urgent=True)
        earlier, last = ({"order": each["order"]} if named else {} for each in orders(made)[FIRST])
        made.hearing.hear(first, {**failed, "step": 8, **earlier})
        assert not made.run.saves.answered.is_set()
        made.hearing.hear(first, {**failed, "step": 9, **last})
        assert made.run.saves.answered.is_set()

    scene(check)


def test_another_worker_s_loss_leaves_an_order_where_it_is(scene: Look) -> None:
    def check(made: Scene) -> None:
        made.run.order_save("why", urgent=True)
        lose(made, SECOND)
        assert list(orders(made)) == [FIRST]
        assert not made.run.saves.answered.is_set()

    scene(check)


def test_when_nobody_is_left_nobody_is_waited_for(scene: Look) -> None:
    def check(made: Scene) -> None:
        made.run.order_save("why", urgent=True)
        for worker in NAMES:
            assert not made.run.saves.answered.is_set()
            lose(made, worker)
        assert made.run.saves.answered.is_set()

    scene(check)


def test_of_a_sharded_state_the_next_generation_s_first_worker_saves(scene: Look) -> None:
    """Until then nobody has all of it, and only rank 0 is asked whether to save."""

    def check(made: Scene) -> None:
        shard(made)
        made.run.order_save("cancelled", urgent=True, seconds=20.0)
        lose(made, FIRST)
        assert list(orders(made)) == [FIRST]
        assert not made.run.saves.answered.is_set()
        form(made, SECOND, THIRD)
        assert [len(given) for given in orders(made).values()] == [1, 1]
        answer(made, SECOND, orders(made)[SECOND][0])
        assert made.run.saves.answered.is_set()
        lose(made, SECOND)
        form(made, THIRD)
        assert list(orders(made)) == [FIRST, SECOND]

    scene(check)


def test_what_a_sharded_worker_got_that_is_not_rank_0_goes_to_the_one_that_is(scene: Look) -> None:
    """Of a generation whose first worker was lost, it was the first that was there."""

    def check(made: Scene) -> None:
        shard(made)
        lose(made, FIRST)
        made.run.order_save("node is drained", urgent=False)
        assert list(orders(made)) == [SECOND]
        lose(made, SECOND)
        form(made, THIRD)
        assert list(orders(made)) == [SECOND, THIRD]

    scene(check)


@pytest.mark.parametrize("shards", [True, False])
def test_the_coordinator_tells_when_a_generation_is_in_force_or_cannot_be(
    tmp_path: Path, shards: bool
) -> None:
    async def act() -> None:
        made, coordinator = coordinated(RunFolder.create(tmp_path / "run", SPEC))
        made.run.roster.workers[FIRST].shards = shards
        saves = coordinator._run.saves
        coordinator._run.order_save("why", urgent=True)
        saves._saver = ""
        coordinator._record(Formed(2, (FIRST,), NAMES, 8, recovered=True))
        assert len(orders(made)[FIRST]) == 1 + shards
        coordinator._record(Waiting(1, 2))
        assert saves.answered.is_set() == shards, "those that have parked cannot save it"

    asyncio.run(act())

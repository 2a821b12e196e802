"""A sharded model is saved before so many leave that the rest cannot train: who has parked cannot save it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from test_acting import NAMES, SPEC, Scene

from hpctools.elastic.folder import RunFolder

LIMIT = 30.0
LEAVER = NAMES[2]


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def leaves(scene: Scene) -> bool:
    return scene.run.membership._ready[LEAVER].leaving


def scene_of(tmp_path: Path, *, least: int, shards: bool) -> Scene:
    spec = replace(SPEC, min_nodes=least)
    scene = Scene(RunFolder.create(tmp_path / "run", spec), spec)
    for worker in scene.run.roster.workers.values():
        worker.shards = shards
    return scene


def told_to_go(scene: Scene, seconds: float) -> None:
    scene.hearing.leaves(scene.run.roster.agents["r8"], "departed", time.monotonic(), seconds)
    # Slurm tells the worker, too, which says so in its next sign of life.
    beat = {"kind": "beat", "leaving": True}
    scene.hearing.hear(scene.run.roster.workers[LEAVER], beat)


def test_who_leaves_too_few_behind_goes_when_the_state_is_saved(tmp_path: Path) -> None:
    async def act() -> None:
        scene = scene_of(tmp_path, least=3, shards=True)
        told_to_go(scene, 3600.0)
        first = scene.workers[NAMES[0]]
        await until(lambda: bool(first.said("save")))
        (order,) = first.said("save")
        assert (order["urgent"], order["why"]) == (True, "fewer workers than the least will be left")
        await asyncio.sleep(0.2)  # as long as it would take otherwise
        assert not leaves(scene)
        scene.hearing.hear(
            scene.run.roster.workers[NAMES[0]], {"kind": "saved", "step": 7, "why": order["why"]}
        )
        await until(lambda: leaves(scene))

    asyncio.run(act())


@pytest.mark.parametrize(("reason", "seconds"), [("departed", 26.5), ("preempted", 0.0)])
def test_who_is_not_preempted_has_kill_wait_to_save_where_nobody_says_when_its_node_is_gone(
    tmp_path: Path, reason: str, seconds: float
) -> None:
    """GraceTime, which is a preempted replica's, may be none: then nothing of the model would be saved."""

    async def act() -> None:
        spec = replace(SPEC, min_nodes=3, grace_seconds=0.0, kill_wait_s=30.0)
        scene = Scene(RunFolder.create(tmp_path / "run", spec), spec)
        for worker in scene.run.roster.workers.values():
            worker.shards = True
        scene.hearing.leaves(scene.run.roster.agents["r8"], reason, time.monotonic())
        await until(lambda: bool(scene.workers[NAMES[0]].said("save")))
        (order,) = scene.workers[NAMES[0]].said("save")
        assert order["seconds"] == seconds

    asyncio.run(act())


@pytest.mark.parametrize(
    ("why", "step"),
    [
        ("interval", 7),
        ("all nodes have to go", 7),
        ("fewer workers than the least will be left", 5),
    ],
)
def test_a_save_that_was_not_the_one_that_was_ordered_lets_nobody_go(
    tmp_path: Path, why: str, step: int
) -> None:
    """It is of the interval, of another order, or of an earlier one for the same reason."""

    async def act() -> None:
        scene = scene_of(tmp_path, least=3, shards=True)
        scene.run.journal.change(step=6)
        told_to_go(scene, 3600.0)
        first = scene.run.roster.workers[NAMES[0]]
        await until(lambda: bool(scene.workers[NAMES[0]].said("save")))
        scene.hearing.hear(first, {"kind": "saved", "step": step, "why": why})
        assert not scene.run.saves.answered.is_set()
        ordered = "fewer workers than the least will be left"
        scene.hearing.hear(first, {"kind": "saved", "step": 7, "why": ordered})
        await until(lambda: leaves(scene))

    asyncio.run(act())


@pytest.mark.parametrize(("left", "seconds"), [(0.0, 0.0), (7.0, 7.0), (None, SPEC.graceful_seconds)])
def test_before_all_leave_the_state_has_the_time_that_the_last_one_has(
    tmp_path: Path, left: float | None, seconds: float
) -> None:
    """None at all is not the same as a time that nobody knows."""

    async def act() -> None:
        scene = scene_of(tmp_path, least=1, shards=False)
        agents = scene.run.roster.agents
        for name in ("r7", "r8"):
            scene.hearing.leaves(agents[name], "departed", time.monotonic(), 60.0)
        scene.hearing.leaves(agents["b0"], "departed", time.monotonic(), left)
        (order,) = scene.workers[NAMES[0]].said("save")
        assert (order["why"], order["seconds"]) == ("all nodes have to go", seconds)

    asyncio.run(act())


@pytest.mark.parametrize("kind", ["saved", "unsaved"])
def test_the_number_of_an_order_tells_whose_answer_it_is(tmp_path: Path, kind: str) -> None:
    """Who had done step 100 is gone, and the others have 99; for an earlier order nobody waits any more."""

    async def act() -> None:
        scene = scene_of(tmp_path, least=3, shards=True)
        scene.run.journal.change(step=100)
        scene.run.order_save("fewer workers than the least will be left", urgent=False)
        told_to_go(scene, 3600.0)
        first = scene.run.roster.workers[NAMES[0]]
        await until(lambda: len(scene.workers[NAMES[0]].said("save")) == 2)
        earlier, order = scene.workers[NAMES[0]].said("save")
        for given, answers in ((earlier, False), ({**order, "order": "0.2"}, False), (order, True)):
            answer = {"kind": kind, "step": 99, "why": given["why"], "order": given["order"]}
            scene.hearing.hear(first, answer)
            assert scene.run.saves.answered.is_set() == answers
        await until(lambda: leaves(scene))

    asyncio.run(act())


def test_that_a_worker_of_an_earlier_release_could_not_save_is_an_answer(tmp_path: Path) -> None:
    async def act() -> None:
        scene = scene_of(tmp_path, least=3, shards=True)
        scene.run.order_save("why", urgent=True)
        first = scene.run.roster.workers[NAMES[0]]
        scene.hearing.hear(first, {"kind": "unsaved", "step": 7, "why": "why; its loss is not finite"})
        assert scene.run.saves.answered.is_set()

    asyncio.run(act())


@pytest.mark.parametrize(
    ("least", "shards", "seconds"), [(2, True, 3600.0), (3, False, 3600.0), (3, True, 0.0)]
)
def test_who_need_not_wait_or_has_no_time_goes(
    tmp_path: Path, least: int, shards: bool, seconds: float
) -> None:
    """The rest trains on; or whoever has parked has all of the state, and saves it then."""

    async def act() -> None:
        scene = scene_of(tmp_path, least=least, shards=shards)
        told_to_go(scene, seconds)
        await asyncio.wait_for(until(lambda: leaves(scene)), 5)

    asyncio.run(act())

"""What was saved before a roll back is not what the run has on disk, whenever that is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from test_acting import NAMES, SPEC, Scene

from hpctools.elastic.actions import RollBack
from hpctools.elastic.folder import RunFolder

BACK = RollBack(steps=1, skip=True, reason="why", blamed=9)
FIRST = NAMES[0]


def saved(generation: int | None, **more: Any) -> dict[str, Any]:
    """A worker's message; None: of an earlier release, which does not say in which generation."""
    told = {"kind": "saved", "step": 9, "seconds": 0.1, "held_s": 0.0, "bytes": 1, "where": "/c", "why": "x"}
    return {**told, "rounds": 9, **more} | ({} if generation is None else {"generation": generation})


def scene_of(tmp_path: Path) -> Scene:
    return Scene(RunFolder.create(tmp_path / "run", SPEC))


def test_a_save_of_before_a_roll_back_that_is_told_after_it_does_not_count(tmp_path: Path) -> None:
    """Storage knows whether it is void; who ordered it does not wait in vain."""

    async def act() -> None:
        scene = scene_of(tmp_path)
        run, worker = scene.run, scene.run.roster.workers[FIRST]
        run.order_save("node is drained", urgent=False)
        (order,) = scene.workers[FIRST].said("save")
        scene.acting.act(BACK)
        scene.hearing.hear(worker, saved(1, order=order["order"]))
        assert (run.has_checkpoint, run.may_have_checkpoint) == (False, True)
        assert run.membership._saved_rounds == -1
        assert run.saves.answered.is_set()
        scene.hearing.hear(worker, saved(2))
        assert (run.has_checkpoint, run.membership._saved_rounds) == (True, 9)
        void, counts = [each.detail for each in run.folder.events() if each.event == "saved"]
        assert void == {**counts, "rolled_back": True}
        assert not {"kind", "rounds", "order", "generation"} & set(void)

    asyncio.run(act())


@pytest.mark.parametrize("generation", [None, 1])
def test_without_a_roll_back_every_save_counts(tmp_path: Path, generation: int | None) -> None:
    async def act() -> None:
        scene = scene_of(tmp_path)
        scene.run.membership._last_number = 3  # some resizes later
        scene.hearing.hear(scene.run.roster.workers[FIRST], saved(generation))
        assert (scene.run.has_checkpoint, scene.run.membership._saved_rounds) == (True, 9)

    asyncio.run(act())

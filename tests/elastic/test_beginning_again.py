"""All begin again with what was saved, but not for ever with the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

from test_acting import SPEC, Scene

from hpctools.elastic.beginning_again import MOST, BeginningAgain
from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.effects import Broken
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.generations import STATE_IS_LOST
from hpctools.testing.slurm import FakeSlurm

LOST = Broken(STATE_IS_LOST, state_is_lost=True)


def test_a_fault_that_comes_again_after_each_beginning_ends_the_run(tmp_path: Path) -> None:
    """A batch for which the memory is too small, some minutes after each start: it would go on for days."""

    async def play() -> None:
        scene, begun = Scene(RunFolder.create(tmp_path / "run", SPEC)), list[int]()
        again = BeginningAgain(scene.run, lambda: begun.append(1))
        scene.run.has_checkpoint = True
        for _ in range(MOST):
            again.on_broken(LOST)
        saved = {"kind": "saved", "step": 3, "why": "", "order": ""}
        scene.hearing.hear(scene.run.roster.workers["b0.0.0"], saved)
        for _ in range(MOST):
            again.on_broken(LOST)
        assert len(begun) == 2 * MOST
        assert not scene.run.ended.done(), "it has come further"
        again.on_broken(LOST)
        outcome = scene.run.ended.result()
        assert (len(begun), outcome.state, outcome.exit_code) == (2 * MOST, "failed", 1)
        assert "nothing newer could be saved" in outcome.message

    asyncio.run(play())


def test_who_takes_over_goes_on_counting(tmp_path: Path) -> None:
    """The fault may take the coordinator's node along: each of them would have counted its own."""

    async def play() -> None:
        scene = Scene(RunFolder.create(tmp_path / "run", SPEC))
        again, folder = BeginningAgain(scene.run, lambda: None), scene.run.folder
        scene.run.has_checkpoint = True
        counts = []
        for saved in ({}, {"rolled_back": True}, {"step": 3}):
            folder.append_event("saved", where="/s/step-1", **saved)
            again.on_broken(LOST)
            again.on_broken(LOST)
            scene.run.warn("something else")
            coordinator = Coordinator(folder, FakeSlurm(), 5, term=2)
            coordinator._begin("host")
            counts.append(coordinator._run.begun_again)
        assert counts == [2, 4, 2]

    asyncio.run(play())

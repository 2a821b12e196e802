"""What was saved before a roll back is not what the run has on disk, whenever that is told."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from checkpoint_rig import RUN, Training, write
from test_acting import NAMES, SPEC, Scene, coordinated
from test_saved_first import until

from hpctools.elastic.actions import RestartWorker, RollBack
from hpctools.elastic.checkpoint import keeper, saver
from hpctools.elastic.checkpoint.keeper import Order
from hpctools.elastic.checkpoint.saver import Origin
from hpctools.elastic.checkpoint.settings import Checkpoint
from hpctools.elastic.checkpoint.store import Abandoned, abandon, open_store
from hpctools.elastic.checkpoint.tensors import write_state
from hpctools.elastic.earlier_terms import has_checkpoint
from hpctools.elastic.folder import Event, RunFolder

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


def test_what_was_being_saved_as_ordered_when_all_went_back_is_saved_of_the_next_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's time may be nearly up: nobody orders it again."""
    reached, released = threading.Event(), threading.Event()

    def held_up(folder: Path, tensors: Any, skeleton: Any, go_on: Any) -> Any:
        reached.set()
        assert released.wait(30)
        return write_state(folder, tensors, skeleton, go_on)

    monkeypatch.setattr(saver, "write_state", held_up)
    monkeypatch.setattr(keeper, "LEAVE_SECONDS", 0.0)
    training = Training(tmp_path, Checkpoint(every_seconds=0))
    training.desk.order = Order("the run's time is nearly up", urgent=False, number="1.1")
    training.go_to(4)
    assert reached.wait(30)
    training.keeper.roll_back(2, 4)
    training.desk.origin = Origin(RUN.run, RUN.term, RUN.generation + 1)
    training.keeper.settled(2)
    released.set()
    assert training.saved() == []
    training.go_to(3)
    assert training.saved() == [3]
    (told,) = training.desk.of("saved")
    assert told["order"] == "1.1"
    training.go_to(4)
    assert training.saved() == [3], "once"


def event(name: str, **detail: Any) -> Event:
    return Event("now", name, detail)


ROLLED_BACK = event("action", action="RollBack")


@pytest.mark.parametrize(
    ("events", "known"),
    [
        ([], False),
        ([event("saved"), event("action", action="RestartAll")], True),
        ([event("saved"), ROLLED_BACK], False),
        ([event("saved"), ROLLED_BACK, event("saved", rolled_back=True)], False),
        ([event("saved"), ROLLED_BACK, event("saved")], True),
        ([ROLLED_BACK, event("resumed")], True),
    ],
)
def test_who_takes_over_does_not_count_on_what_a_roll_back_may_have_made_void(
    events: list[Event], known: bool
) -> None:
    assert has_checkpoint(events) is known


@pytest.mark.parametrize(("steps", "begins"), [((28,), False), ((8, 28), True)])
def test_when_all_is_lost_after_a_roll_back_storage_says_whether_something_is_left(
    tmp_path: Path, steps: tuple[int, ...], begins: bool
) -> None:
    """Without anything the run ends, as when nothing was ever saved; it began at step 0 without a word."""

    async def act() -> None:
        folder = RunFolder.create(tmp_path / "run", SPEC)
        made, coordinator = coordinated(folder)
        run, worker = coordinator._run, made.run.roster.workers[FIRST]
        write(folder.path / "checkpoints", *steps, origin=Origin(SPEC.id, 1, 1))
        for step in steps:
            coordinator._connections._hearing.hear(worker, saved(1, step=step))
        coordinator.act(RollBack(steps=1, skip=True, reason="nan", blamed=21))
        abandon(open_store(str(folder.path / "checkpoints")), Abandoned(SPEC.id, 1, 2, 20))
        coordinator.act(RestartWorker(FIRST, "hang: why", 42))
        await until(lambda: run.ended.done() or run.membership.generation == 0)
        assert run.ended.done() is not begins
        if not begins:
            outcome = run.ended.result()
            assert (outcome.state, outcome.code) == ("failed", 42)
            assert outcome.message.endswith("is left, and nothing was saved")

    asyncio.run(act())

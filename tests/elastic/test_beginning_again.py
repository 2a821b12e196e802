"""All begin again with what was saved, or at step 0 where nothing was yet; but not for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_acting import NAMES, SPEC, Scene, Wire
from test_membership import link_all, started
from test_saved_first import until

from hpctools.elastic import beginning_again
from hpctools.elastic.actions import RestartWorker, RollBack
from hpctools.elastic.beginning_again import MOST, BeginningAgain
from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.earlier_terms import BEGINS_AGAIN, BEGINS_ANEW
from hpctools.elastic.effects import Broken
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.generations import STATE_IS_LOST
from hpctools.elastic.peers import Outcome
from hpctools.elastic.recovery.settings import EXIT_CODES
from hpctools.errors import ElasticError
from hpctools.testing.slurm import FakeSlurm

LOST = Broken(STATE_IS_LOST, state_is_lost=True)
FIRST = NAMES[0]
SAVED = {"kind": "saved", "step": 3, "why": "", "order": "", "where": "/s/step-3"}
OFF = replace(SPEC, checkpoint={"intervalInSeconds": 0})


class Losing:
    """A scene in which the last of the state is lost; it notes how all begin again.

    Attributes:
        begun: without which steps, of each beginning.
    """

    def __init__(self, folder: Path, spec: Any = SPEC) -> None:
        self.scene = Scene(RunFolder.create(folder, spec), spec)
        self.run, self.begun = self.scene.run, list[list[int]]()
        self.again = BeginningAgain(self.run, self._begin)

    def _begin(self, skip: Sequence[int]) -> None:
        self.begun.append(list(skip))

    async def lose(self) -> None:
        """Until it is known what follows."""
        known = len(self.begun)
        self.again.on_broken(LOST)
        await until(lambda: len(self.begun) > known or self.run.ended.done())

    def hear(self, **message: Any) -> None:
        self.scene.hearing.hear(self.run.roster.workers[FIRST], message)

    @property
    def warnings(self) -> list[str]:
        events = self.run.folder.events()
        return [each.detail["message"] for each in events if each.event == "warning"]


def play(act: Callable[[], Awaitable[None]]) -> None:
    async def played() -> None:
        await act()

    asyncio.run(played())


def test_a_fault_that_comes_again_after_each_beginning_ends_the_run(tmp_path: Path) -> None:
    """A batch for which the memory is too small, some minutes after each start: it would go on for days."""

    async def act() -> None:
        losing = Losing(tmp_path / "run")
        losing.run.has_checkpoint = True
        for _ in range(MOST):
            await losing.lose()
        losing.hear(**SAVED)
        for _ in range(MOST):
            await losing.lose()
        assert losing.begun == [[]] * 2 * MOST
        assert not losing.run.ended.done(), "it has come further"
        await losing.lose()
        outcome = losing.run.ended.result()
        assert (len(losing.begun), outcome.state, outcome.exit_code) == (2 * MOST, "failed", 1)
        assert "nothing newer could be saved" in outcome.message

    play(act)


def test_who_takes_over_goes_on_counting(tmp_path: Path) -> None:
    """The fault may take the coordinator's node along: each of them would have counted its own."""

    async def act() -> None:
        losing = Losing(tmp_path / "run")
        run, counts = losing.run, []
        await losing.lose()
        run.has_checkpoint = True
        for saved in ({}, {"rolled_back": True}, {"step": 3}):
            run.folder.append_event("saved", where="/s/step-1", **saved)
            await losing.lose()
            await losing.lose()
            run.warn("something else")
            coordinator = Coordinator(run.folder, FakeSlurm(), 5, term=2)
            coordinator._begin("host")
            counts.append(coordinator._run.begun_again)
            assert coordinator._run.has_saved
        assert counts == [2, 4, 2]

    play(act)


def test_where_nothing_was_saved_yet_all_begin_at_step_0_which_is_said_and_limited(tmp_path: Path) -> None:
    """By the defaults nothing is saved in the first ten minutes: any node may die in them."""

    async def act() -> None:
        losing = Losing(tmp_path / "run")
        for _ in range(MOST):
            await losing.lose()
        assert losing.begun == [[]] * MOST
        told = [each for each in losing.warnings if each.endswith(BEGINS_ANEW)]
        assert told == [f"{STATE_IS_LOST}: {BEGINS_ANEW}"] * MOST
        await losing.lose()
        outcome = losing.run.ended.result()
        assert (outcome.state, outcome.exit_code) == ("failed", 1)
        assert f"begun again {MOST} times at step 0, and nothing could be saved" in outcome.message

    play(act)


def test_what_storage_has_of_which_nobody_has_told_comes_before_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who saved it died before it could say so."""
    monkeypatch.setattr(beginning_again, "something_saved", lambda *_: True)

    async def act() -> None:
        losing = Losing(tmp_path / "run")
        await losing.lose()
        assert losing.warnings[-1].endswith(BEGINS_AGAIN)

    play(act)


def test_what_is_saved_while_storage_is_looked_at_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a worker that is left of a sharded model: its save went on beside the training."""
    reached, told_of = threading.Event(), threading.Event()

    def look(*_: object) -> bool:
        reached.set()
        return not told_of.wait(5)

    monkeypatch.setattr(beginning_again, "something_saved", look)

    async def act() -> None:
        losing = Losing(tmp_path / "run")
        losing.again.on_broken(LOST)
        await until(reached.is_set)
        losing.hear(**SAVED)
        told_of.set()
        await until(lambda: bool(losing.begun) or losing.run.ended.done())
        assert losing.begun == [[]]
        assert losing.warnings[-1].endswith(BEGINS_AGAIN)

    play(act)


def test_batches_that_were_left_out_stay_left_out_at_the_beginning(tmp_path: Path) -> None:
    """Whoever coordinates then."""

    async def act() -> None:
        losing = Losing(tmp_path / "run")
        run, acting = losing.run, losing.scene.acting
        acting.act(RollBack(steps=1, skip=True, reason="why", blamed=7))
        acting.act(RollBack(steps=1, skip=False, reason="why", blamed=5))
        acting.act(RollBack(steps=1, skip=True, reason="why"))  # the one in work
        run.at_stake = None  # it trains again
        await losing.lose()
        assert losing.begun == [[5, 7]]
        losing.scene.acting.restart_all([5, 7, 9])
        assert run.left_out == {5, 7, 9}
        coordinator = Coordinator(run.folder, FakeSlurm(), 5, term=2)
        coordinator._begin("host")
        assert coordinator._run.left_out == {5, 7}

    play(act)


@pytest.mark.parametrize("rolled_back", [True, False])
def test_what_has_saved_something_and_finds_nothing_of_it_fails(tmp_path: Path, *, rolled_back: bool) -> None:
    """Also when only the run's events tell so, and void is what a roll back has given up."""

    async def act() -> None:
        losing = Losing(tmp_path / "run")
        if rolled_back:
            losing.hear(**SAVED)
            losing.scene.acting.act(RollBack(steps=1, skip=True, reason="why", blamed=2))
            losing.run.at_stake = None
        else:
            losing.run.folder.append_event("saved", **SAVED)
        await losing.lose()
        said = losing.run.ended.result().message
        assert said == f"{STATE_IS_LOST}, and nothing of what was saved may be used any more"

    play(act)


def test_a_place_that_cannot_be_read_is_no_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_: object) -> bool:
        raise ElasticError("cannot read /s: ESTALE", "see to it")

    monkeypatch.setattr(beginning_again, "something_saved", look)

    async def act() -> None:
        losing = Losing(tmp_path / "run")
        await losing.lose()
        assert losing.begun == []
        assert "whether it was saved cannot be known: cannot read /s" in losing.run.ended.result().message

    play(act)


@pytest.mark.parametrize(
    ("spec", "told", "begins"), [(OFF, None, False), (SPEC, False, False), (OFF, True, True)]
)
def test_without_checkpoints_the_run_fails_and_says_how_to_switch_them_on(
    tmp_path: Path, spec: Any, *, told: bool | None, begins: bool
) -> None:
    """By the policy, or by what the workers say of policy and script together."""

    async def act() -> None:
        losing = Losing(tmp_path / "run", spec)
        if told is not None:
            losing.hear(kind="saving", by_itself=told)
        await losing.lose()
        assert bool(losing.begun) is begins
        if not begins:
            said = losing.run.ended.result().message
            assert said.startswith(f"{STATE_IS_LOST}, and checkpoints are off; have them written")
            assert "intervalInSeconds" in said
            assert "every_seconds" in said

    play(act)


@pytest.mark.parametrize(("spec", "saves"), [(OFF, True), (SPEC, False), (SPEC, None)])
def test_who_takes_over_hears_it_of_a_worker_that_comes(
    tmp_path: Path, spec: Any, *, saves: bool | None
) -> None:
    """Of policy and script together; a worker that has no loader yet says nothing."""

    async def act() -> None:
        losing, wire = Losing(tmp_path / "run", spec), Wire()
        del losing.run.roster.workers[FIRST]  # it has not come to this coordinator yet
        losing.scene.connections._admit_worker({"worker": FIRST, "saves": saves}, wire)  # type: ignore[arg-type]
        await losing.lose()
        assert bool(losing.begun) is (saves is not False)

    play(act)


def test_a_fault_that_a_rule_deals_with_ends_the_run_with_its_code(tmp_path: Path) -> None:
    async def act() -> None:
        losing = Losing(tmp_path / "run")
        losing.scene.acting.act(RestartWorker(FIRST, "crash: why", EXIT_CODES["crash"]))
        await losing.lose()
        outcome = losing.run.ended.result()
        assert (outcome.code, losing.begun) == (EXIT_CODES["crash"], [])
        assert outcome.message.endswith("nothing was saved")

    play(act)


@pytest.mark.parametrize("spec", [SPEC, OFF])
def test_the_last_one_that_froze_was_lost_and_has_no_fault(tmp_path: Path, spec: Any) -> None:
    async def act() -> None:
        losing = Losing(tmp_path / "run", spec)
        losing.run.at_stake = Outcome("failed", "no sign of life", EXIT_CODES["hang"], is_loss=True)
        await losing.lose()
        assert bool(losing.begun) is (spec is SPEC)
        if spec is OFF:
            assert losing.run.ended.result().code == EXIT_CODES["hang"]

    play(act)


@pytest.mark.parametrize(
    ("spec", "code", "said"),
    [
        (SPEC, -9, ""),
        (SPEC, 1, "ended with exit code 1"),
        (OFF, -9, "checkpoints are off"),
        (OFF, 1, "ended with exit code 1"),
    ],
)
def test_it_is_waited_for_how_those_that_were_lost_have_ended(
    tmp_path: Path, spec: Any, code: int, said: str
) -> None:
    """Who raises hangs up long before its process ends; started again it would raise again."""

    async def act() -> None:
        losing = Losing(tmp_path / "run", spec)
        looked = asyncio.Event()
        losing.again._ends_are_known = told(losing.again._ends_are_known, looked)  # type: ignore[method-assign]
        losing.run.membership.lost(FIRST, 1.0)
        losing.again.on_broken(LOST)
        await asyncio.wait_for(looked.wait(), 5)
        assert (losing.begun, losing.run.ended.done()) == ([], False)
        losing.scene.ends(FIRST, code)
        await until(lambda: bool(losing.begun) or losing.run.ended.done())
        assert bool(losing.begun) is not bool(said)
        assert not said or said in losing.run.ended.result().message

    play(act)


@pytest.mark.parametrize("saved", [False, True])
def test_a_program_that_ends_well_on_the_only_worker_ends_the_run(tmp_path: Path, *, saved: bool) -> None:
    """It has left its loop early, say, as with several workers; the state that went with it is not missed."""

    async def act() -> None:
        losing = Losing(tmp_path / "run")
        run, membership = losing.run, losing.run.membership
        run.has_checkpoint = saved

        def carry_out() -> None:
            effects, membership.effects = membership.effects, []
            for broken in (each for each in effects if isinstance(each, Broken)):
                losing.again.on_broken(broken)

        run.carry_out = carry_out
        for replica in NAMES[1:]:
            membership.lost(replica, 1.0, foreseen=True)
        losing.scene.connections._on_disconnect(run.roster.workers[FIRST])
        assert FIRST in run.roster.missing
        losing.scene.ends(FIRST, 0)
        await until(lambda: bool(losing.begun) or run.ended.done())
        assert losing.begun == []
        assert run.ended.result() == Outcome("finished")

    play(act)


def test_shards_that_nobody_has_any_more_break_the_run_once_they_are_looked_for() -> None:
    """All that are left say so; of an attempt before, it says nothing any more."""
    membership = started("ab")
    membership.lost("a", now=2)
    membership.state_lost("b", 2, "why")
    membership.parked("b", 2, 5, now=2)
    link_all(membership, 2, "b")
    membership.effects.clear()
    membership.state_lost("b", 1, "why")
    membership.state_lost("x", 2, "why")
    assert membership.effects == []
    for _ in range(2):
        membership.state_lost("b", 2, "why")
    assert membership.effects == [Broken("why", state_is_lost=True)]


def told(question: Callable[[], bool], asked: asyncio.Event) -> Callable[[], bool]:
    """The same question, of which it is told that it was asked."""

    def ask() -> bool:
        asked.set()
        return question()

    return ask

"""After the last step a worker may save the final model: neither a broken line nor a takeover ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_acting import NAMES, SPEC, Scene, Wire
from test_assembly import TRAINING, taken_over
from test_membership import sent

from hpctools.elastic.connections import RETURN_SECONDS
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.membership import Membership
from hpctools.elastic.peers import Agent, Outcome

BASELINE, *REPLICAS = NAMES


class Ending(Scene):
    """All have done the last step; the replicas' programs have ended, the baseline's goes on."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder)
        for worker in NAMES:
            self.run.membership.done(worker)
        self.run.carry_out()
        self.run.completed = True
        for worker in REPLICAS:
            self.ends(worker, 0)
        assert self.run.finishing
        self.hang_up()

    def hang_up(self) -> None:
        """The line of the baseline's agent breaks, and its worker's."""
        self.connections._drop(self.run.roster.agents["b0"])
        self.connections._drop(self.run.roster.workers[BASELINE])

    def come_again(self, **hello: Any) -> Wire:
        """The baseline's agent has a new line; returns what is written to it."""
        wire = Wire()
        first = {"agent": "b0", "baseline": True, "place": 0, "node": "n0", "job_id": 0, "role": "agent"}
        said = {"kind": "hello", "token": self.connections.token, **first, **hello}
        assert isinstance(self.connections._admit(said, wire), Agent)  # type: ignore[arg-type]
        return wire


@pytest.fixture
def ending(tmp_path: Path) -> Callable[[Callable[[Ending], None]], None]:
    def look(check: Callable[[Ending], None]) -> None:
        async def scene() -> None:
            check(Ending(RunFolder.create(tmp_path / "run", SPEC)))

        asyncio.run(scene())

    return look


Look = Callable[[Callable[[Ending], None]], None]


def test_an_agent_that_comes_again_finds_its_worker_left_alone(ending: Look) -> None:
    def check(scene: Ending) -> None:
        assert not scene.run.ended.done(), "the final model may not be saved yet"
        wire = scene.come_again(running=[BASELINE])
        assert [each["kind"] for each in wire.messages if each["kind"] != "heir"] == ["welcome"]
        assert not scene.run.ended.done()
        scene.ends(BASELINE, 0)
        scene.connections._exits.check_finished()
        assert scene.run.ended.result().state == "finished"

    ending(check)


def test_its_worker_may_have_ended_well_meanwhile(ending: Look) -> None:
    def check(scene: Ending) -> None:
        scene.come_again(running=[], ended=[{"worker": BASELINE, "code": 0, "tail": []}])
        scene.connections._exits.check_finished()
        assert scene.run.ended.result().state == "finished"

    ending(check)


def test_its_worker_may_have_failed_meanwhile(ending: Look) -> None:
    def check(scene: Ending) -> None:
        scene.come_again(running=[], ended=[{"worker": BASELINE, "code": 1, "tail": ["disk full"]}])
        scene.connections._exits.check_finished()
        assert scene.run.ended.result().state == "failed"

    ending(check)


def test_one_that_does_not_come_again_is_not_waited_for_for_ever(ending: Look) -> None:
    def check(scene: Ending) -> None:
        soon = time.monotonic() + RETURN_SECONDS
        scene.connections.check_silence(soon - RETURN_SECONDS / 2, late=False)
        assert not scene.run.ended.done()
        scene.connections.check_silence(soon + 1, late=False)
        assert scene.run.ended.result().state == "finished"

    ending(check)


def test_who_slept_waits_once_more(ending: Look) -> None:
    def check(scene: Ending) -> None:
        soon = time.monotonic() + RETURN_SECONDS + 1
        scene.connections.check_silence(soon, late=True)
        assert not scene.run.ended.done()

    ending(check)


@pytest.mark.parametrize("how", [{"done": True}, {"finished": True}])
def test_a_worker_that_comes_after_all_is_told_that_the_training_is_complete(how: dict[str, bool]) -> None:
    """It waits for that word before it saves; "stop" would end it there."""
    first = replace(TRAINING, done=True, finished=True)
    membership = taken_over(first, completed=True)
    membership.consider(now=20)
    assert ("a", {"kind": "finish"}) in sent(membership)
    membership.returned("b", (0, 1), replace(TRAINING, rank=1, **how), now=21)
    assert sent(membership) == [("b", {"kind": "finish"})]


def test_one_that_has_not_done_the_last_step_is_ended() -> None:
    membership = taken_over(replace(TRAINING, finished=True), completed=True)
    membership.consider(now=20)
    sent(membership)
    membership.returned("b", (0, 1), replace(TRAINING, rank=1, completed=20), now=21)
    assert sent(membership) == [("b", {"kind": "stop"})]


def broken() -> Membership:
    """Its only worker with the state is lost."""
    membership = taken_over(TRAINING)
    membership.consider(now=20)
    membership.lost("a", now=21)
    sent(membership)
    return membership


def test_workers_that_come_to_a_run_that_broke_wait_until_it_is_known_what_becomes_of_it() -> None:
    """Whether something was saved takes time to find out; who were told to stop would end well meanwhile."""
    membership = broken()
    membership.returned("b", (0, 1), replace(TRAINING, rank=1, done=True), now=22)
    membership.ready("c", (0, 2), now=22)
    assert sent(membership) == []
    membership.begin_again()
    membership.ready("c", (0, 2), now=23)
    assert [message["kind"] for _, message in sent(membership)] == ["form"]


def test_a_worker_that_ends_well_in_a_run_that_broke_does_not_finish_it(tmp_path: Path) -> None:
    async def scene() -> None:
        made = Scene(RunFolder.create(tmp_path / "run", SPEC))
        made.run.membership = broken()
        made.ends(BASELINE, 0)
        assert not made.run.is_over
        assert made.agents["b0"].said("restart") == [{"kind": "restart", "worker": BASELINE}]

    asyncio.run(scene())


def test_an_agent_that_comes_back_to_a_run_that_has_ended_is_told_to_go(ending: Look) -> None:
    """Whatever it has to tell: the other agents were told already, and nobody tells it later."""

    def check(scene: Ending) -> None:
        scene.run.end(Outcome("cancelled", "by hand"))
        wire = scene.come_again(running=[], ended=[{"worker": BASELINE, "code": 0, "tail": []}])
        assert wire.said("shutdown") == [{"kind": "shutdown", "code": 143}]

    ending(check)

"""The keeper of the baseline job beside a Slurm in memory: who takes its place, and what goes back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_acting import SPEC, Scene, Wire

from hpctools.elastic import baseline as module
from hpctools.elastic import job_fate
from hpctools.elastic.assembly import FIRST_SECONDS, Returned
from hpctools.elastic.baseline import Baseline
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.forming import Member
from hpctools.elastic.membership import Membership
from hpctools.elastic.peers import Agent, Worker
from hpctools.errors import UnreachableError
from hpctools.testing.slurm import FakeSlurm

Check = Callable[["Rig"], Awaitable[None]]


class Rig:
    """A run whose baseline job 101 has the node n0, beside two replicas; its keeper looks all the time."""

    def __init__(self, tmp_path: Path, **more: Any) -> None:
        script = tmp_path / "b.sh"
        script.write_text("#!/bin/sh\n")
        options = ("--nodes=1", "--exclude=n8")
        spec = replace(SPEC, baseline_script=str(script), baseline_options=options, **more)
        self.slurm = FakeSlurm()
        self.job = self.slurm.submit(options, script)
        self.scene = Scene(RunFolder.create(tmp_path / "run", spec), spec)
        self.run = self.scene.run
        self.run.roster.agents["b0"].job_id = self.job
        self.given_back: list[str] = []
        self.keeper = Baseline(self.run, self.slurm, self.job, self._give_back)

    def _give_back(self, agent: Agent) -> None:
        agent.leaving = True
        self.given_back.append(agent.name)

    def lose_agents(self) -> None:
        """The baseline's agents are gone."""
        del self.run.roster.agents["b0"]

    def arrive(self, job_id: int, node: str = "n5") -> None:
        """The agent of another baseline job, with a worker that is not ready yet."""
        name = f"b{job_id}"
        order = (1, job_id, 0)
        self.run.roster.agents[name] = Agent(Wire(), name, order, node, job_id, is_baseline=True, seen=0.0)  # type: ignore[arg-type]
        worker = f"{name}.0.0"
        self.run.roster.workers[worker] = Worker(Wire(), worker, name, 0.0)  # type: ignore[arg-type]

    def is_ready(self, job_id: int) -> None:
        """Its worker could train."""
        self.run.membership._ready[f"b{job_id}.0.0"] = Member((1, job_id, 0, 0, 0))

    def warnings(self) -> list[str]:
        events = self.run.folder.events()
        return [str(each.detail["message"]) for each in events if each.event == "warning"]


async def until(condition: Callable[[], Any]) -> None:
    async def look() -> None:
        while not condition():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(look(), 10)


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(module, "RETURN_SECONDS", 0.01)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)

    def keep(check: Check, **more: Any) -> None:
        async def scene() -> None:
            rig = Rig(tmp_path, **more)
            keeping = asyncio.ensure_future(rig.keeper.keep())
            try:
                await check(rig)
            finally:
                keeping.cancel()

        asyncio.run(scene())

    return keep


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("CANCELLED", "baseline job 101 was cancelled (scancel)"),
        ("TIMEOUT", "baseline job 101 ran out of time (--time)"),
    ],
)
def test_a_job_that_somebody_ended_ends_the_run_and_says_how(
    keep: Callable[..., None], state: str, message: str
) -> None:
    async def check(rig: Rig) -> None:
        rig.slurm.change(rig.job, state="COMPLETING")
        rig.lose_agents()
        await asyncio.sleep(0.1)
        assert not rig.run.ended.done(), "more is known when it has ended"
        rig.slurm.change(rig.job, state=state)
        outcome = await asyncio.wait_for(rig.run.ended, 10)
        assert (outcome.state, outcome.message) == ("cancelled", message)
        assert len(rig.slurm.submitted) == 1

    keep(check)


@pytest.mark.parametrize("state", ["COMPLETING", "NODE_FAIL"])
def test_a_lost_job_is_replaced_also_while_slurm_still_cleans_up(
    keep: Callable[..., None], state: str
) -> None:
    async def check(rig: Rig) -> None:
        rig.slurm.accounted[rig.job] = "NODE_FAIL"
        rig.slurm.change(rig.job, state=state)
        rig.lose_agents()
        await until(lambda: len(rig.slurm.submitted) == 2)
        assert not rig.run.ended.done()

    keep(check)


def test_a_job_whose_agents_leave_is_replaced_before_they_are_gone(keep: Callable[..., None]) -> None:
    """Of a run without replicas nobody could do it later."""

    async def check(rig: Rig) -> None:
        rig.scene.hearing.leaves(rig.run.roster.agents["b0"], "departed", 0.0)
        await until(lambda: len(rig.slurm.submitted) == 2)
        await asyncio.sleep(0.1)
        assert len(rig.slurm.submitted) == 2
        assert rig.warnings() == ["baseline job 101 loses a node; 102 takes its place"]

    keep(check)


@pytest.mark.parametrize(
    ("accounted", "submitted", "message"),
    [
        ("NODE_FAIL", 2, None),
        ("CANCELLED", 1, "baseline job 101 was cancelled (scancel)"),
        ("TIMEOUT", 1, "baseline job 101 ran out of time (--time)"),
    ],
)
def test_a_job_that_ends_for_an_unknown_reason_is_asked_for_until_slurm_says_it(
    keep: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    accounted: str,
    submitted: int,
    message: str | None,
) -> None:
    """Its agents are still there, and leave; until then nothing is decided, neither way."""
    monkeypatch.setattr(job_fate, "PAUSE_SECONDS", 0.0)

    async def check(rig: Rig) -> None:
        rig.slurm.change(rig.job, state="COMPLETING")
        rig.scene.hearing.leaves(rig.run.roster.agents["b0"], "departed", 0.0, is_open=True)
        rig.run.send_away(rig.run.roster.agents["b0"])  # its workers have left
        await asyncio.sleep(0.3)
        assert rig.keeper.is_open
        assert (len(rig.slurm.submitted), rig.run.ended.done()) == (1, False)
        rig.slurm.accounted[rig.job] = accounted
        await until(lambda: len(rig.slurm.submitted) == 2 or rig.run.ended.done())
        await asyncio.sleep(0.1)
        assert len(rig.slurm.submitted) == submitted
        assert not rig.keeper.is_open
        assert (rig.run.ended.result().message if rig.run.ended.done() else None) == message

    keep(check)


def test_a_slurm_that_is_away_is_asked_on_about_a_job_that_ends(
    keep: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(rig: Rig) -> None:
        answer = rig.slurm.jobs

        def away(**_: Any) -> Any:
            raise UnreachableError("slurmctld does not answer")

        rig.slurm.jobs = away  # type: ignore[method-assign]
        rig.scene.hearing.leaves(rig.run.roster.agents["b0"], "departed", 0.0, is_open=True)
        await until(rig.warnings)
        assert (len(rig.slurm.submitted), rig.run.ended.done()) == (1, False)
        rig.slurm.change(rig.job, state="NODE_FAIL")
        rig.slurm.jobs = answer  # type: ignore[method-assign]
        await until(lambda: len(rig.slurm.submitted) == 2)

    keep(check)


def test_a_job_that_waits_is_kept_off_nodes_that_are_excluded_later(keep: Callable[..., None]) -> None:
    async def check(rig: Rig) -> None:
        rig.slurm.change(rig.job, state="NODE_FAIL")
        rig.lose_agents()
        await until(lambda: len(rig.slurm.submitted) == 2)
        assert rig.slurm.submitted[1].options.count("--exclude=n8") == 1
        rig.run.replicas.exclude("n7")
        await until(lambda: rig.slurm.excluded)
        rig.run.replicas.exclude("n3")
        await until(lambda: rig.slurm.excluded == {102: ("n8", "n3", "n7")})
        rig.run.replicas.avoid("n5", 3.0)
        await until(lambda: rig.slurm.excluded == {102: ("n8", "n3", "n5", "n7")})
        await until(lambda: rig.slurm.excluded == {102: ("n8", "n3", "n7")})
        rig.slurm.change(102, state="RUNNING", nodes=("n4",))
        rig.run.replicas.exclude("n6")
        await asyncio.sleep(0.1)
        assert rig.slurm.excluded == {102: ("n8", "n3", "n7")}, "it has its nodes"

    keep(check)


def test_what_is_left_of_a_job_goes_back_when_all_of_the_next_one_could_train(
    keep: Callable[..., None],
) -> None:
    async def check(rig: Rig) -> None:
        rig.run.loses_baseline(rig.job)
        await until(lambda: len(rig.slurm.submitted) == 2)
        rig.arrive(102)
        await asyncio.sleep(0.1)
        assert rig.given_back == []
        rig.is_ready(102)
        await until(lambda: rig.given_back)
        await asyncio.sleep(0.1)
        assert rig.given_back == ["b0"]
        assert rig.warnings()[-1] == "what is left of baseline job 101 is given back: 102 has its place"

    keep(check)


def test_what_is_left_of_a_job_stays_while_the_next_one_has_too_few_nodes(keep: Callable[..., None]) -> None:
    async def check(rig: Rig) -> None:
        rig.run.loses_baseline(rig.job)
        await until(lambda: len(rig.slurm.submitted) == 2)
        rig.arrive(102)
        rig.is_ready(102)
        await asyncio.sleep(0.1)
        assert rig.given_back == []

    keep(check, min_nodes=2)


@pytest.mark.parametrize("has_come", [True, False])
def test_only_a_job_that_the_run_ended_without_is_cancelled(
    has_come: bool, keep: Callable[..., None]
) -> None:
    """One whose agents were told to go ends well by itself, and Slurm shall say so of it."""

    async def check(rig: Rig) -> None:
        if not has_come:
            rig.lose_agents()
        unused = rig.keeper.unused()
        rig.run.roster.agents.clear()  # they were told to go, and have gone
        await rig.keeper.cancel(unused)
        assert rig.slurm.cancelled == ([] if has_come else [rig.job])

    keep(check)


def test_after_the_last_step_a_lost_job_is_not_replaced_while_others_end_their_programs(
    keep: Callable[..., None],
) -> None:
    async def check(rig: Rig) -> None:
        assert rig.run.roster.agents.keys() > {"b0"}
        rig.run.completed = True
        rig.lose_agents()
        rig.slurm.change(rig.job, state="NODE_FAIL")
        await asyncio.sleep(0.2)
        assert len(rig.slurm.submitted) == 1
        # Nobody is left to end the program well.
        rig.run.roster.agents.clear()
        await until(lambda: len(rig.slurm.submitted) == 2)

    keep(check)


def test_who_takes_over_does_not_replace_a_lost_job_before_it_has_heard_how_the_training_stands(
    keep: Callable[..., None],
) -> None:
    """The last step may be done. When it is not, or the training waits for workers, one is submitted."""

    async def check(rig: Rig) -> None:
        run, membership = rig.run, Membership((1, 2, 3))
        run.takes_over, run.membership = True, membership
        membership.take_over(1, time.monotonic())
        rig.lose_agents()
        rig.slurm.change(rig.job, state="NODE_FAIL")
        await asyncio.sleep(0.2)
        assert len(rig.slurm.submitted) == 1
        standing = Returned(ready=True, trains=True, generation=1, rank=1, world=3, completed=9)
        membership.returned("r7.0.0", (1, 7, 0, 0), standing, time.monotonic())
        membership.consider(time.monotonic() + FIRST_SECONDS)
        assert membership.phase == "recovering"
        await asyncio.sleep(0.2)
        assert len(rig.slurm.submitted) == 1
        membership.parked("r7.0.0", 2, 9, time.monotonic())
        membership.linked("r7.0.0", 2, time.monotonic())
        membership.switched("r7.0.0", 2, 9, time.monotonic())
        assert membership.phase == "running"
        await until(lambda: len(rig.slurm.submitted) == 2)

    keep(check)


def test_a_run_that_ends_while_slurm_is_asked_gets_no_other_job(
    keep: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(rig: Rig) -> None:
        asked, answer = threading.Event(), threading.Event()

        def slow() -> None:
            asked.set()
            assert answer.wait(10)

        monkeypatch.setattr(rig.keeper, "_left_behind", slow)
        rig.lose_agents()
        rig.slurm.change(rig.job, state="NODE_FAIL")
        await until(asked.is_set)
        rig.run.finishing = True
        answer.set()
        await asyncio.sleep(0.2)
        assert len(rig.slurm.submitted) == 1

    keep(check)


def test_a_job_that_is_submitted_as_the_run_ends_is_cancelled(tmp_path: Path) -> None:
    async def scene() -> None:
        rig = Rig(tmp_path)
        begun, answer, submit = threading.Event(), threading.Event(), rig.slurm.submit

        def slow(*given: Any) -> int:
            begun.set()
            assert answer.wait(10)
            return submit(*given)

        rig.slurm.submit = slow  # type: ignore[method-assign, assignment]
        submitting = asyncio.ensure_future(rig.keeper._submit("was lost"))
        await until(begun.is_set)
        unused = rig.keeper.unused()
        submitting.cancel()
        cancelling = asyncio.ensure_future(rig.keeper.cancel(unused))
        await asyncio.sleep(0.05)
        assert not cancelling.done()
        answer.set()
        await asyncio.wait_for(cancelling, 10)
        assert len(rig.slurm.submitted) == 2
        assert rig.slurm.submitted[1].job_id in rig.slurm.cancelled

    asyncio.run(scene())


def test_a_submission_that_fails_as_the_run_ends_leaves_nothing_to_cancel(tmp_path: Path) -> None:
    async def scene() -> None:
        rig = Rig(tmp_path)
        begun = threading.Event()

        def refused(*_: Any) -> int:
            begun.set()
            raise UnreachableError("slurmctld does not answer")

        rig.slurm.submit = refused  # type: ignore[method-assign, assignment]
        submitting = asyncio.ensure_future(rig.keeper._submit("was lost"))
        await until(begun.is_set)
        submitting.cancel()
        await asyncio.wait_for(rig.keeper.cancel(None), 10)
        assert rig.slurm.cancelled == []

    asyncio.run(scene())


def _two_nodes(rig: Rig, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.05) -> None:
    """The job has two nodes, and both agents have come."""
    monkeypatch.setattr(module, "ASK_SECONDS", 0.0)
    monkeypatch.setattr(module, "LOST_SECONDS", seconds)
    first = rig.run.roster.agents["b0"]
    rig.run.roster.agents["b1"] = replace(first, name="b1", order=(0, 1, 0), node="n1", running=set())
    rig.slurm.change(rig.job, state="RUNNING")


async def _seen_whole(rig: Rig) -> None:
    await until(lambda: rig.keeper._gap._was_whole)


def test_a_job_that_slurm_has_ended_is_replaced_though_something_of_it_still_takes_part(
    keep: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon of its step was killed with it, and an agent was started again in that moment."""

    async def check(rig: Rig) -> None:
        _two_nodes(rig, monkeypatch, seconds=1000.0)
        await _seen_whole(rig)
        rig.slurm.accounted[rig.job] = "NODE_FAIL"
        rig.slurm.change(rig.job, state="NODE_FAIL")
        del rig.run.roster.agents["b1"]
        await until(lambda: len(rig.slurm.submitted) == 2)
        assert not rig.run.ended.done()

    keep(check, min_nodes=2)


def test_a_job_that_goes_on_without_one_of_its_nodes_is_replaced(
    keep: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm ends one whose node fails, but not one of which a step's daemon is killed."""

    async def check(rig: Rig) -> None:
        _two_nodes(rig, monkeypatch)
        await _seen_whole(rig)
        del rig.run.roster.agents["b1"]
        await until(lambda: len(rig.slurm.submitted) == 2)
        assert "baseline job 101 lacks 1 of its 2 nodes; 102 takes its place" in rig.warnings()

    keep(check, min_nodes=2)


@pytest.mark.parametrize("case", ["comes back", "not yet come", "leaves", "waits again"])
def test_an_agent_that_is_awaited_is_not_given_up(
    keep: Callable[..., None], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    async def check(rig: Rig) -> None:
        _two_nodes(rig, monkeypatch, seconds=0.3 if case == "comes back" else 0.05)
        agents = rig.run.roster.agents
        if case != "not yet come":
            await _seen_whole(rig)
        lost = agents.pop("b1")
        if case == "leaves":
            agents["b0"].leaving = True
        if case == "waits again":
            rig.slurm.change(rig.job, state="PENDING")
        await asyncio.sleep(0.15)
        if case == "comes back":
            agents["b1"] = lost
            await asyncio.sleep(0.3)
        assert len(rig.slurm.submitted) == 1

    keep(check, min_nodes=2)

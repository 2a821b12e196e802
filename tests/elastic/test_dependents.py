"""Jobs that wait for a run: they wait for its newest baseline job, and no job before it says it is over."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_acting import Wire
from test_baseline import Rig, until

from hpctools.elastic import baseline as baseline_module
from hpctools.elastic import context as context_module
from hpctools.elastic import dependents as module
from hpctools.elastic.dependents import renamed
from hpctools.elastic.peers import Outcome
from hpctools.elastic.recovery import EXIT_GOES_ON
from hpctools.errors import CommandError
from hpctools.slurm.types import Job

GOES_ON = [{"kind": "shutdown", "code": EXIT_GOES_ON, "goes_on": True}]


@pytest.mark.parametrize(
    ("told", "becomes"),
    [
        ("afterok:101", "afterok:109"),
        ("afterok:7:101:1010,afterany:101", "afterok:7:109:1010,afterany:109"),
        ("after:101+101?afternotok:7101", "after:109+101?afternotok:7101"),
        ("singleton,aftercorr:102", "singleton,aftercorr:109"),
        ("afterok:5", "afterok:5"),
    ],
)
def test_only_the_ids_of_jobs_that_were_replaced_change(told: str, becomes: str) -> None:
    assert renamed(told, {101, 102}, 109) == becomes


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run whose baseline job 101 is noted; job 1 waits for it, job 2 of the same user for another one."""
    monkeypatch.setattr(baseline_module, "RETURN_SECONDS", 0.01)
    monkeypatch.setattr(baseline_module, "LOOK_SECONDS", 0.01)

    class Made(Rig):
        def __init__(self) -> None:
            super().__init__(tmp_path)
            self.run.folder.append_job("baseline", self.job)
            for job_id, user in ((1, "nlp1"), (2, "nlp1"), (3, "cv1")):
                self.slurm.queue[job_id] = Job(job_id, "next", user, "nlp", "gpu", "normal", "PENDING")
            self.slurm.awaited = {1: "afterok:101,after:5+3", 2: "afterany:77", 3: "afterok:101"}

        def said(self) -> list[dict[str, Any]]:
            wire = self.run.roster.agents["b0"].writer
            assert isinstance(wire, Wire)
            return wire.said("shutdown")

    return Made


async def kept(rig: Any, check: Any) -> None:
    keeping = asyncio.ensure_future(rig.keeper.keep())
    try:
        await check()
    finally:
        keeping.cancel()
        rig.run.give_up_background()


def test_who_waits_for_a_job_waits_for_the_next_one_before_its_last_agent_goes(rig: Any) -> None:
    async def scene() -> None:
        made, told_before = rig(), []
        depend = made.slurm.depend

        def slow(job_id: int, dependency: str) -> None:
            told_before.append(made.said())
            depend(job_id, dependency)

        made.slurm.depend = slow

        async def check() -> None:
            agent = made.run.roster.agents["b0"]
            agent.leaving = True
            made.run.send_away(agent)
            assert made.said() == []
            await until(made.said)
            assert (made.said(), told_before) == (GOES_ON, [[]])
            assert [each.job_id for each in made.slurm.submitted] == [101, 102]
            assert made.slurm.awaited == {1: "afterok:102,after:5+3", 2: "afterany:77", 3: "afterok:101"}

        await kept(made, check)

    asyncio.run(scene())


def test_a_job_s_exit_code_is_that_of_its_last_nodes(rig: Any) -> None:
    """Slurm takes the largest: one that leaves while another of its job stays must not spoil a good end."""

    async def scene() -> None:
        made = rig()
        made.run.relieved[made.job].set()
        other = made.run.roster.agents["r8"]
        other.is_baseline, other.job_id = True, made.job
        made.run.send_away(made.run.roster.agents["b0"])
        assert [each["code"] for each in made.said()] == [0]
        other.leaving = True
        made.run.send_away(made.run.roster.agents["b0"])
        assert [each["code"] for each in made.said()] == [0, 50]

    asyncio.run(scene())


def test_the_end_is_told_to_who_has_come_again_meanwhile(rig: Any) -> None:
    async def scene() -> None:
        made = rig()
        former = made.run.roster.agents["b0"]
        made.run.send_away(former)
        again = made.run.roster.agents["b0"] = replace(former, writer=Wire())
        made.run.relieved[made.job].set()
        await until(made.said)
        assert (made.run.roster.agents["b0"], [each["code"] for each in made.said()]) == (again, [50])
        made.run.give_up_background()

    asyncio.run(scene())


def test_what_slurm_refuses_is_tried_again_and_does_not_keep_the_others_from_being_told(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent does not wait for ever, and its exit code does not say that the run has ended well."""
    monkeypatch.setattr(context_module, "RELIEF_SECONDS", 0.05)
    monkeypatch.setattr(module, "LONGEST_BACKOFF", 0.1)

    async def scene() -> None:
        made, refused = rig(), []
        made.slurm.awaited[2] = "afterany:101"
        depend = made.slurm.depend

        def refuse_once(job_id: int, dependency: str) -> None:
            if job_id == 1 and len(refused) < 2:
                refused.append(job_id)
                raise CommandError("scontrol failed", argv=["scontrol"], code=1)
            depend(job_id, dependency)

        made.slurm.depend = refuse_once

        async def check() -> None:
            made.run.send_away(made.run.roster.agents["b0"])
            await until(lambda: made.slurm.awaited[2] == "afterany:102")
            await until(made.said)
            assert made.said() == GOES_ON
            await until(lambda: made.slurm.awaited[1] == "afterok:102,after:5+3")
            (told,) = [each for each in made.warnings() if "cannot have jobs" in each]
            assert told == "cannot have jobs that wait for this run wait for 102: scontrol failed"

        await kept(made, check)

    asyncio.run(scene())


def test_who_takes_over_tells_those_whom_the_one_before_did_not_come_to_tell(rig: Any) -> None:
    async def scene() -> None:
        made = rig()
        made.run.folder.append_job("baseline", 102)
        made.keeper._job_id = made.run.roster.agents["b0"].job_id = 102

        async def check() -> None:
            await until(lambda: made.slurm.awaited[1] == "afterok:102,after:5+3")
            assert made.run.relieved[101].is_set()
            assert not made.run.relieved[102].is_set()

        await kept(made, check)

    asyncio.run(scene())


def test_nobody_is_asked_while_the_run_has_its_first_baseline_job(rig: Any) -> None:
    async def scene() -> None:
        made = rig()

        def never(user: str) -> dict[int, str]:
            raise AssertionError(user)

        made.slurm.dependencies = never
        await module.Dependents(made.run, made.slurm).follow(101)

    asyncio.run(scene())


def test_until_slurm_knows_that_the_job_is_lost_the_coordinator_s_own_job_has_its_place(rig: Any) -> None:
    """Else all that waits for its end would begin in the moment in which Slurm notices."""

    async def scene() -> None:
        made, now = rig(), int(time.time())
        made.run.job_id = 55
        made.slurm.queue[101] = replace(made.slurm.queue[101], state="RUNNING", started=now)
        made.lose_agents()

        async def check() -> None:
            await asyncio.sleep(0.1)
            assert made.slurm.awaited[1] == "afterok:101,after:5+3", "its agents may still come"
            made.slurm.queue[101] = replace(made.slurm.queue[101], started=now - 60)
            await until(lambda: made.slurm.awaited[1] == "afterok:55,after:5+3")
            made.run.folder.append_job("replica", 55)
            made.slurm.change(101, state="NODE_FAIL")
            await until(lambda: made.slurm.awaited[1] == "afterok:102,after:5+3")
            assert made.slurm.awaited[2] == "afterany:77"

        await kept(made, check)

    asyncio.run(scene())


def test_who_only_was_away_is_waited_for_again(rig: Any) -> None:
    async def scene() -> None:
        made = rig()
        made.run.job_id = 55
        made.run.folder.append_job("replica", 55)
        made.slurm.queue[101] = replace(made.slurm.queue[101], state="RUNNING", started=1)
        agent = made.run.roster.agents.pop("b0")

        async def check() -> None:
            await until(lambda: made.slurm.awaited[1] == "afterok:55,after:5+3")
            made.run.roster.agents["b0"] = agent
            await until(lambda: made.slurm.awaited[1] == "afterok:101,after:5+3")
            await until(lambda: not made.run.relieved[101].is_set())

        await kept(made, check)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("state", "told", "left"),
    [
        ("failed", "afterok:101", "afterok:101"),
        ("finished", "afterok:101", ""),
        ("finished", "afterok:7:101,afterany:101,singleton", "afterok:7,singleton"),
        ("finished", "afterok:101?afterok:7", ""),
        ("finished", "afterok:7?afternotok:101", "afterok:7"),
        ("finished", "after:101,after:101+5", "after:101+5"),
        ("finished", "after:101+5?afterok:7", "after:101+5?afterok:7"),
        ("finished", "afterok:101:7,afternotok:101", "afterok:101:7,afternotok:101"),
    ],
)
def test_of_a_run_that_finished_without_its_newest_job_those_that_wait_for_that_one_learn_it(
    rig: Any, state: str, told: str, left: str
) -> None:
    """A cancelled job would never fulfil what they wait for; of a failed run it shall not.

    Minutes are Slurm's to count, and what can never be is nobody's to begin.
    """

    async def scene() -> None:
        made = rig()
        made.slurm.awaited[1] = told
        made.run.end(Outcome(state))
        await made.keeper.cancel(101)
        assert (made.slurm.awaited[1], made.slurm.cancelled) == (left, [101])

    asyncio.run(scene())


def test_after_the_last_step_a_baseline_s_agent_that_goes_ends_well(rig: Any) -> None:
    async def scene() -> None:
        made = rig()
        made.run.completed = True
        made.run.send_away(made.run.roster.agents["b0"])
        assert made.said() == [{"kind": "shutdown", "code": 0, "goes_on": True}]

    asyncio.run(scene())


def test_whose_agent_comes_when_the_run_has_failed_is_told_so(rig: Any) -> None:
    async def scene() -> None:
        made, wire = rig(), Wire()
        made.run.end(Outcome("failed", "why", 42))
        hello = {"agent": "b102", "baseline": True, "first": False, "place": 0, "node": "n5", "job_id": 102}
        made.scene.connections._admit_agent(hello, wire)
        assert [each["code"] for each in wire.said("shutdown")] == [42]

    asyncio.run(scene())

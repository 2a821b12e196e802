"""The coordinator's part of restart mode: what those that watch the run get to see."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_acting import SPEC, Scene, Wire

from hpctools.elastic.actions import Depart, Prepare
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.recovery.findings import Finding
from hpctools.elastic.recovery.pace import Pace
from hpctools.elastic.recovery.settings import Stall
from hpctools.elastic.relinquishing import why_kept
from hpctools.elastic.restart.generations import Generations
from hpctools.elastic.restart.record import Record
from hpctools.elastic.restart.run import RestartRun
from hpctools.elastic.watchers import MemberView, Report


def restarting(folder: Path, *, takes_over: bool = False) -> tuple[Scene, RestartRun]:
    """A coordinator of a run in restart mode; inside of an event loop."""
    spec = replace(SPEC, mode="restart")
    made = Scene(RunFolder.create(folder / "run", spec), spec)
    restart = made.run.restart = RestartRun(made.run, takes_over=takes_over)
    return made, restart


def test_watchers_see_ranks_that_run_those_that_could_and_those_that_go(tmp_path: Path) -> None:
    """A node that is drained may go as soon as there is another, also before that one has ranks."""

    async def scene() -> None:
        made, restart = restarting(tmp_path)
        agents = made.run.roster.agents
        restart.joined(agents["b0"], {})
        restart.joined(agents["r7"], {})
        formed = [MemberView(f"{name}.0", node, 0, 0.0, True) for name, node in (("b0", "n0"), ("r7", "n1"))]
        standby = MemberView("r8.0", "n2", None, 0.0, False, ready=True)
        restart._generations._record = record_of("b0", "r7")
        assert restart.view(1.0).members == (*formed, standby)
        made.acting.act(Depart("n1", 30.0, "why"))
        assert restart.view(1.0).members == (formed[0], replace(formed[1], leaves=True), standby)
        assert agents["r7"].reason == "departed"
        assert agents["r7"].told is not None

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("seconds", "until"), [pytest.param(120.0, 65.0, id="a minute and the way out"), pytest.param(30.0, 30.0)]
)
def test_a_node_that_is_needed_departs_while_its_script_has_the_time_to_save(
    seconds: float, until: float, tmp_path: Path
) -> None:
    async def scene() -> None:
        made, restart = restarting(tmp_path)
        made.run.act = made.acting.act
        agent, now = made.run.roster.agents["r7"], time.monotonic()
        made.acting.act(Prepare("n1", seconds, "why", 9.0))
        restart.tick(now + seconds - until - 5.0)
        assert agent.leaving == (seconds <= until)
        restart.tick(now + seconds - until + 5.0)
        assert agent.leaving
        (departs,) = [
            each.detail for each in made.run.folder.events() if each.detail.get("action") == "Depart"
        ]
        assert (departs["node"], departs["avoid_s"], departs["reason"]) == ("n1", 9.0, "why")
        assert departs["seconds"] == pytest.approx(min(until, seconds), abs=6.0)
        assert agent.reason == "departed"

    asyncio.run(scene())


def test_a_node_that_is_needed_stays_when_nobody_says_when_it_goes(tmp_path: Path) -> None:
    async def scene() -> None:
        made, restart = restarting(tmp_path)
        made.acting.act(Prepare("n1", None, "why"))
        restart.tick(time.monotonic() + 3600.0)
        assert not made.run.roster.agents["r7"].leaving

    asyncio.run(scene())


@pytest.mark.parametrize("why", [{"leaving": "preempted"}, {"departs": 5.0}])
def test_nobody_is_started_anew_for_a_node_that_has_to_go_already_when_it_comes(
    why: dict[str, Any], tmp_path: Path
) -> None:
    """With it the run would be as large as it may be, which nothing is waited for; and its time is short."""

    async def scene() -> None:
        made, restart = restarting(tmp_path)
        made.run.act = made.acting.act
        del made.run.roster.agents["r8"]
        for name in ("b0", "r7"):
            restart.joined(made.run.roster.agents[name], {})
        machine, now = restart._generations, time.monotonic()
        machine.tick(now + 60)
        machine.offered("b0", 1, "host", 1, now)
        for name in ("b0", "r7"):
            machine.began(name, 1, now)
            machine.counted(name, 1, {"0": (3, 0)}, now)
        wire: Any = Wire()
        comes = {"agent": "r8", "baseline": False, "job_id": 8, "place": 0, "node": "n2"}
        made.connections._admit_agent({**comes, **why, "ranks": {"generation": 0, "ranks": {}}}, wire)
        assert (machine.phase, machine.members) == ("running", ("b0", "r7"))
        assert len(wire.said("shutdown")) == 1

    asyncio.run(scene())


def test_a_node_that_comes_with_ranks_has_as_long_as_it_says(tmp_path: Path) -> None:
    """Of a baseline's that is ended the coordinator before us knew since when."""

    async def scene() -> None:
        made, restart = restarting(tmp_path, takes_over=True)
        made.run.roster.agents.clear()
        comes = {"agent": "b0", "baseline": True, "job_id": 0, "place": 0, "node": "n0"}
        leaves = {"leaving": "departed", "open": True, "seconds": 6.0}
        runs = {"generation": 4, "members": ["b0"], "restarts": 0, "committed": 0, "ending": False}
        wire: Any = Wire()
        made.connections._admit_agent(
            {**comes, **leaves, "ranks": {**runs, "ranks": {"0": [3, 0, None, ""]}}}, wire
        )
        until = restart._generations._roster.soonest(["b0"])
        assert until is not None
        assert until - time.monotonic() == pytest.approx(4.0, abs=1.0)

    asyncio.run(scene())


def test_a_replica_s_node_is_given_up_though_the_run_needs_it(tmp_path: Path) -> None:
    """What broke there may break each rank that is started there again."""

    async def scene() -> None:
        made, restart = restarting(tmp_path)
        agents = made.run.roster.agents
        for name in ("b0", "r7"):
            restart.joined(agents[name], {})
        made.run.spec = replace(made.run.spec, min_nodes=3)
        assert why_kept(made.run, [agents["r7"]]) is None
        assert why_kept(made.run, [agents["b0"]]) is not None

    asyncio.run(scene())


def test_ranks_that_ask_no_more_do_no_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        made, restart = restarting(tmp_path)
        journal = made.run.journal
        journal.change(world_size=2, step=0)
        rates = []
        for second in range(31):
            monkeypatch.setattr(Generations, "step", 2 * min(second, 10), raising=False)
            restart.tick(float(second))
            rates.append(journal.status.steps_per_second)
        assert rates[:2] == [None, None], "one step tells no speed"
        assert rates[2:16] == [2.0] * 14
        assert rates[30] is not None
        assert rates[30] < 0.3

    asyncio.run(scene())


def test_ranks_that_start_are_not_stalled_however_long_that_takes(tmp_path: Path) -> None:
    """They import, load a checkpoint, compile, at first and after each change of size; steps may be long."""

    async def scene() -> None:
        _, restart = restarting(tmp_path)
        machine, pace, now = restart._generations, Pace(Stall(), None), 0

        def passes(seconds: int) -> list[Finding]:
            nonlocal now
            begun, now = now, now + seconds
            return [
                each for at in range(begun, now) for each in pace.tick(float(at), restart.view(float(at)))
            ]

        for number in (1, 2):
            machine.generation, machine.phase = number, "running"
            record = machine._record = Record(number, ("b0",), 1)
            assert passes(100) == [], "they start"
            for calls in range(1, 6):
                record.observe("b0", {"0": (calls, 0)}, float(now))
                assert passes(40) == []
            machine._steps += record.calls
        machine._steps -= record.calls  # it is still on
        (found,) = passes(500)
        assert (found.cause, found.step) == ("stalledStep", 10)
        assert found.numbers["median_s"] == 40.0

    asyncio.run(scene())


def test_ranks_that_are_left_by_one_that_ends_well_are_stalled_as_before(tmp_path: Path) -> None:
    """Its part of the data was shorter: the others wait for it in an all-reduce."""

    async def scene() -> None:
        _, restart = restarting(tmp_path)
        machine, pace, now = restart._generations, Pace(Stall(), None), 0
        machine.generation, machine.phase = 1, "running"
        record = machine._record = Record(1, ("b0", "r7"), 1)
        found: list[Finding] = []
        for calls in range(1, 8):
            for agent in record.members:
                record.observe(agent, {"0": (calls, 0)}, float(now))
            for now in range(now, now + 5):  # noqa: B020
                found += pace.tick(float(now), restart.view(float(now)))
        assert found == []
        record.ranks["r7", 0].code = 0
        for now in range(now, now + 100):  # noqa: B020
            found += pace.tick(float(now), restart.view(float(now)))
        assert [each.cause for each in found] == ["stalledStep"]

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("name", "worker", "generation", "past"),
    [
        ("b0.0#1", "b0.0", 1, True),
        ("b0.0#2", "b0.0", 2, False),
        ("b0.0", "b0.0", None, False),
        ("", "", None, False),
    ],
)
def test_it_is_known_whether_who_printed_a_line_has_been_started_again(
    tmp_path: Path, name: str, worker: str, generation: int | None, *, past: bool
) -> None:
    """A rank ends with the line that a rule waits for, which is told when the next ones run already."""

    async def scene() -> None:
        made, restart = restarting(tmp_path)
        restart._generations.generation, told = 2, list[Report]()
        watching = made.hearing._watching
        watching.heard = lambda now, report: told.append(report)  # type: ignore[method-assign]
        restart.view = lambda now: pytest.fail("all ranks are gone through")  # type: ignore[method-assign]
        message = {"kind": "log", "worker": name, "what": "bad", "metrics": {"matched": 1.0}, "lines": []}
        made.hearing.hear(made.run.roster.agents["b0"], message)
        assert [(each.worker, each.generation, each.past) for each in told] == [(worker, generation, past)]

    asyncio.run(scene())


def record_of(*members: str) -> Record:
    return Record(1, members, 1)

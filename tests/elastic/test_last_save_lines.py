"""A line that breaks while ranks save before the run ends: it costs nobody the checkpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_acting import SPEC, Scene, Wire

from hpctools.elastic import agent_line, connections
from hpctools.elastic.agent_line import AgentLine, RunOverError
from hpctools.elastic.folder import Ending, RunFolder, RunStatus
from hpctools.elastic.peers import Outcome
from hpctools.elastic.restart.effects import Tell
from hpctools.elastic.restart.generations import Generations
from hpctools.elastic.restart.limits import Limits
from hpctools.elastic.restart.run import RestartRun
from hpctools.elastic.succession import Succession

RESTART = replace(SPEC, mode="restart", min_nodes=2, max_nodes=3)
NOW, CALL = 100.0, 7
WANTED = Ending("cancelled", "cancelled by nlp1")


def report(told: int = 0, code: int | None = None, generation: int = 1) -> dict[str, Any]:
    """What an agent says of its one rank when it comes back."""
    return {
        "generation": generation,
        "members": ["a0", "a1"],
        "restarts": 0,
        "committed": told,
        "ending": False,
        "ranks": {"0": [CALL, told, code, ""]},
    }


def told(machine: Generations, agent: str) -> list[dict[str, Any]]:
    effects, machine.effects = machine.effects, []
    messages = [each.message for each in effects if isinstance(each, Tell) and each.agent == agent]
    return [{key: message[key] for key in ("do", "call") if key in message} for message in messages]


def saving(*, agreed: bool = True) -> Generations:
    """Two agents whose ranks are told of the run's end at one call."""
    machine = Generations(Limits(sizes=(2,), per_node=1))
    for place in range(2):
        machine.joined(f"a{place}", (place,), NOW)
    machine.offered("a0", 1, "host", 1, NOW)
    for agent in ("a0", "a1"):
        machine.began(agent, 1, NOW)
        machine.counted(agent, 1, {"0": (3, 0)}, NOW)
    machine.finish(NOW + 1, 20.0)
    call = next(each.message["call"] for each in reversed(machine.effects) if isinstance(each, Tell))
    machine.answered("a0", 1, call, NOW + 1, bound=True, calls=3)
    if agreed:
        machine.answered("a1", 1, call, NOW + 1, bound=True, calls=3)
    machine.effects = []
    return machine


@pytest.mark.parametrize("agreed", [True, False])
def test_one_that_is_lost_ends_nobody_else_s_save(agreed: bool) -> None:
    machine = saving(agreed=agreed)
    machine.gone("a1", NOW + 2)
    does = [each["do"] for each in told(machine, "a0")]
    assert "end" not in does
    assert ("commit" in does) == (not agreed), "its answer is not waited for"
    machine.ended("a0", 1, 0, 0, CALL, [], NOW + 9)
    assert machine.phase == "over"


def test_what_does_not_end_by_itself_is_still_ended_in_time() -> None:
    machine = saving()
    machine.gone("a1", NOW + 2)
    machine.tick(NOW + 20.5)
    assert [each["do"] for each in told(machine, "a0")] == ["end"]


def test_one_that_comes_back_goes_on_and_is_waited_for() -> None:
    machine = saving()
    machine.gone("a1", NOW + 2)
    machine.joined("a1", (1,), NOW + 3, report())
    assert [each["do"] for each in told(machine, "a1")] == ["commit"]
    machine.ended("a0", 1, 0, 0, CALL, [], NOW + 9)
    assert machine.phase == "telling", "it saves yet"
    machine.ended("a1", 1, 0, 0, CALL, [], NOW + 9)
    assert machine.phase == "over"


def test_an_end_of_which_nobody_heard_is_told_with_the_hello() -> None:
    machine = saving()
    machine.ended("a0", 1, 0, 0, CALL, [], NOW + 2)
    machine.joined("a1", (1,), NOW + 3, report(told=CALL, code=0))
    assert machine.phase == "over"


def test_one_that_had_not_agreed_is_asked_again() -> None:
    machine = saving(agreed=False)
    machine.joined("a1", (1,), NOW + 3, report())
    (again,) = told(machine, "a1")
    assert again["do"] == "propose"
    for agent in ("a0", "a1"):
        machine.answered(agent, 1, again["call"], NOW + 3, bound=True, calls=CALL)
    assert told(machine, "a1")[0] == {"do": "commit", "call": again["call"]}


def test_ranks_of_another_generation_are_ended() -> None:
    machine = saving()
    machine.joined("a9", (9,), NOW + 3, report(generation=0))
    assert [each["do"] for each in told(machine, "a9")] == ["end"]


def test_a_new_coordinator_hears_what_is_on_before_it_ends_it() -> None:
    machine = Generations(Limits(sizes=(2,), per_node=1), not_before=NOW + 5)
    machine.finish(NOW, 20.0)
    assert machine.phase == "waiting"
    for place in range(2):
        machine.joined(f"a{place}", (place,), NOW + 1, report())
    assert machine.phase == "telling"
    nobody = Generations(Limits(sizes=(2,), per_node=1), not_before=NOW + 5)
    nobody.finish(NOW, 20.0)
    nobody.tick(NOW + 5)
    assert nobody.phase == "over"


def hello(**ranks: Any) -> dict[str, Any]:
    names = {"agent": "b0", "baseline": True, "job_id": 0, "place": 0, "node": "n0", "running": []}
    return {**names, "ranks": ranks}


def closing(tmp_path: Path, check: Callable[[Scene], None]) -> None:
    async def scene() -> None:
        made = Scene(RunFolder.create(tmp_path / "run", RESTART), RESTART)
        made.run.restart = RestartRun(made.run, takes_over=False)
        made.run.end(Outcome("cancelled", "why"))
        check(made)

    asyncio.run(scene())


@pytest.mark.parametrize(("ranks", "admitted"), [(report(), True), ({"generation": 1, "ranks": {}}, False)])
def test_an_agent_comes_back_to_a_run_that_saves_if_ranks_run_there(
    ranks: dict[str, Any], admitted: bool, tmp_path: Path
) -> None:
    def check(scene: Scene) -> None:
        wire: Any = Wire()
        scene.connections._admit_agent(hello(**ranks), wire)
        assert (wire.said("shutdown") == []) == admitted

    closing(tmp_path, check)


def test_an_agent_whose_line_broke_meanwhile_has_time_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[str] = []
    monkeypatch.setattr(RestartRun, "gone", lambda self, agent: lost.append(agent.name))

    def check(scene: Scene) -> None:
        roster = scene.run.roster
        scene.connections._on_disconnect(roster.agents["r7"])
        assert (list(roster.absent), lost) == (["r7"], [])
        scene.connections.check_silence(time.monotonic() + connections.RETURN_SECONDS + 1, late=False)
        assert "r7" in lost
        scene.run.finishing = True
        scene.connections._on_disconnect(roster.agents.get("r8"))
        assert roster.absent == {}

    closing(tmp_path, check)


@pytest.mark.parametrize(
    ("trains", "final", "waits"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_ranks_that_save_are_not_ended_because_the_run_is_to_end(
    trains: bool, final: bool, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their agent's line broke: it looks for the coordinator for a while, unless nothing runs here."""
    monkeypatch.setattr(agent_line, "ENDING_SECONDS", 0.5 if waits else 60.0)
    folder = RunFolder.create(tmp_path / "run", RESTART)
    folder.claim_term(1)
    folder.ask_to_end(WANTED)
    if final:
        folder.write_status(RunStatus("cancelled"))

    async def look() -> float:
        succession = Succession(
            folder, "b0", lambda term: pytest.fail("nobody is to take over"), is_first=False
        )
        line = AgentLine(folder, "t-1", succession, dict, lambda message: None, trains=lambda: trains)
        began = time.monotonic()
        with pytest.raises(RunOverError):
            await asyncio.wait_for(line.keep(), 30)
        return time.monotonic() - began

    took = asyncio.run(look())
    assert took >= 0.5 or not waits

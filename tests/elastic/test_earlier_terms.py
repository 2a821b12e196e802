"""A coordinator that takes a run over after its last step: it knows so, and that only programs end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpctools.elastic import assembly
from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.earlier_terms import is_complete, last_generation
from hpctools.elastic.folder import CoordinatorAddress, Event, RunFolder, RunStatus
from hpctools.elastic.protocol import encode
from hpctools.elastic.spec import RunSpec
from hpctools.testing.slurm import FakeSlurm

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 3, 1, ("true",), "/", (), "/r.sh", "now")
LIMIT = 20.0


@pytest.mark.parametrize(
    ("events", "complete"),
    [
        ([], False),
        (["joined", "saved"], False),
        (["joined", "completed", "takeover", "warning"], True),
        (["completed", "resumed"], False),
        (["completed", "joined"], False),
        (["completed", "joined", "completed"], True),
    ],
)
def test_the_last_step_is_done_unless_somebody_began_again(events: Sequence[str], complete: bool) -> None:
    assert is_complete([Event("now", event, {}) for event in events]) is complete


@pytest.mark.parametrize("told", [(), (3.0, 100.0), (100.0, None)])
def test_whoever_takes_over_knows_how_long_the_last_save_took(
    tmp_path: Path, told: Sequence[float | None]
) -> None:
    """As far as the events tell."""

    async def take_over() -> float:
        coordinator = Coordinator(folder, FakeSlurm(), 7, term=2)
        coordinator._begin("host")
        return coordinator._run.save_seconds

    folder = RunFolder.create(tmp_path / "run", SPEC)
    for seconds in told:
        folder.append_event("saved", **({} if seconds is None else {"seconds": seconds}))
    folder.append_event("left")
    assert asyncio.run(take_over()) == (100.0 if told else 0.0)


def agent(name: str, *, running: Sequence[str] = (), ended: Sequence[str] = ()) -> dict[str, Any]:
    """What the agent of a replica says of its workers; those that ended did so with exit code 0."""
    ends = [{"worker": worker, "code": 0, "tail": []} for worker in ended]
    job = int(name[1:])
    place = {"baseline": False, "place": 0, "node": f"n{job}", "job_id": job}
    return {"role": "agent", "agent": name, **place, "running": list(running), "ended": ends}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Of a run whose baseline was lost after the last step, in its first term."""
    folder = RunFolder.create(tmp_path / "run", SPEC)
    folder.claim_term(1, agent="b0")
    folder.append_job("baseline", 1)
    folder.write_status(RunStatus("running", min_nodes=1, max_nodes=3, generation=4, step=9))
    folder.append_event("completed", step=9)
    folder.claim_term(2, agent="r7")
    return folder


@pytest.mark.parametrize(("noted", "joined", "known"), [(0, 2, 2), (4, 2, 4), (1, None, 1), (0, None, 0)])
def test_whoever_takes_over_gives_no_generation_s_number_to_another_one(
    tmp_path: Path, noted: int, joined: int | None, known: int
) -> None:
    """A coordinator may be killed between its generation's events and the status."""

    async def take_over() -> int:
        coordinator = Coordinator(folder, FakeSlurm(), 7, term=2)
        coordinator._begin("host")
        return coordinator._run.membership.generation

    folder = RunFolder.create(tmp_path / "run", SPEC)
    folder.write_status(RunStatus("running", min_nodes=1, max_nodes=3, generation=noted))
    if joined is not None:
        folder.append_event("joined", worker="b0.0.0", node="n1", generation=1)
        folder.append_event("joined", worker="r7.0.0", node="n2", generation=joined)
    assert asyncio.run(take_over()) == known


def test_a_generation_that_is_no_number_hides_no_other() -> None:
    told = [Event("", "joined", {"generation": each}) for each in (2, None, "x")]
    assert last_generation([*told, Event("", "joined", {})]) == 2


def test_workers_that_ended_while_nobody_coordinated_have_done_all(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One tells of its end at once, another one only ends: the run is over when both have, and well."""
    monkeypatch.setattr(assembly, "FIRST_SECONDS", 0.5)
    slurm = FakeSlurm()

    async def scene() -> int | None:
        running = asyncio.ensure_future(Coordinator(folder, slurm, 7, term=2).run())
        address = await published(folder)
        _, first = await hello(address, agent("r7", ended=["r7.0.0"]))
        _, other = await hello(address, agent("r8", running=["r8.0.0"]))
        await asyncio.sleep(1.0)  # longer than anybody is waited for
        status = folder.status()
        assert status is not None
        assert status.state == "running", "one still ends its program"
        other.write(encode("exited", worker="r8.0.0", code=0, tail=[]))
        outcome = await asyncio.wait_for(running, LIMIT)
        first.close()
        other.close()
        return outcome

    assert asyncio.run(scene()) == 0
    status = folder.status()
    assert status is not None
    assert status.state == "finished"
    assert slurm.submitted == []


def test_what_an_agents_hello_tells_of_log_rules_is_heard(folder: RunFolder) -> None:
    """The line came while nobody coordinated."""
    rule = {"name": "Steps", "logPattern": "step", "stopPattern": "done"}
    slow = {"name": "Slow", "logPattern": "(a+)+b"}
    spec = replace(SPEC, id="t-2", recovery={"logMonitoringConfiguration": [rule, slow]})
    run = RunFolder.create(folder.path.parent / "other", spec)
    run.claim_term(1, agent="b0")
    run.append_job("baseline", 1)
    run.claim_term(2, agent="r7")
    marks = {"Steps": {"stopped": 1.0}, "Slow": {"given_up": 1.0}}
    told = [{"worker": "", "what": name, "metrics": mark, "lines": []} for name, mark in marks.items()]

    async def scene() -> None:
        coordinator = Coordinator(run, FakeSlurm(), 7, term=2)
        running = asyncio.ensure_future(coordinator.run())
        address = await published(run)
        lines = [await hello(address, {**agent("r7"), "log_rules": told}) for _ in range(2)]
        await asyncio.wait_for(over(), LIMIT)
        coordinator.cancel("that was it")
        for _, line in lines:
            line.close()
        await asyncio.wait_for(running, LIMIT)

    async def over() -> None:
        while len([each for each in run.events() if each.event == "log_rule_over"]) < 2:
            await asyncio.sleep(0.01)

    asyncio.run(scene())
    known = [each.detail for each in run.events() if each.event == "log_rule_over"]
    assert known == [{"rule": "Steps", "why": "stopped"}, {"rule": "Slow", "why": "given up"}]


async def published(folder: RunFolder) -> CoordinatorAddress:
    async def look() -> CoordinatorAddress:
        while (address := folder.coordinator()) is None or address.term != 2:
            await asyncio.sleep(0.01)
        return address

    return await asyncio.wait_for(look(), LIMIT)


async def hello(
    address: CoordinatorAddress, who: dict[str, Any]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(encode("hello", token=address.token, **who))
    assert b"welcome" in await asyncio.wait_for(reader.readline(), LIMIT)
    asyncio.ensure_future(show_life(writer))  # noqa: RUF006 - ends with the connection
    return reader, writer


async def show_life(writer: asyncio.StreamWriter) -> None:
    while not writer.is_closing():
        writer.write(encode("beat"))
        await asyncio.sleep(0.2)

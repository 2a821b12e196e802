"""Agents that come too late: to a coordinator that was replaced, and to a run that is about to finish."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.effects import Waiting
from hpctools.elastic.fence import FRESH_SECONDS
from hpctools.elastic.folder import CoordinatorAddress, RunFolder
from hpctools.elastic.protocol import encode
from hpctools.elastic.spec import RunSpec
from hpctools.testing.slurm import FakeSlurm

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 1, 1, ("true",), "/", (), "/r.sh", "now")
SLOW = 0.3
AGENT = {"role": "agent", "agent": "b0", "baseline": True, "place": 0, "node": "n1", "job_id": 1}


def knock(address: CoordinatorAddress) -> socket.socket:
    """Say hello to a process that may be stopped: the kernel accepts for it."""
    line = socket.create_connection((address.host, address.port), 20)
    line.sendall(encode("hello", token=address.token, **AGENT))
    return line


async def in_office(
    folder: RunFolder,
) -> tuple[Coordinator, asyncio.Future[int | None], CoordinatorAddress]:
    """A coordinator that has published its address."""
    coordinator = Coordinator(folder, FakeSlurm(), 1)
    running = asyncio.ensure_future(coordinator.run())
    while (address := folder.coordinator()) is None:
        await asyncio.sleep(0.01)
    return coordinator, running, address


def slow(look: Callable[[], bool]) -> Callable[[], bool]:
    """As storage may be."""

    def look_slowly() -> bool:
        time.sleep(SLOW)
        return look()

    return look_slowly


def test_nobody_is_welcomed_by_a_coordinator_that_woke_up_out_of_office(tmp_path: Path) -> None:
    """Else a worker obeys it: one that was told to stop ends well, and the run is taken to be finished."""
    folder = RunFolder.create(tmp_path / "run", SPEC)
    folder.claim_term(1, agent="b0")

    async def answers() -> tuple[bytes, bytes]:
        _, running, address = await in_office(folder)
        first = knock(address)
        heard = [await asyncio.to_thread(first.recv, 4096)]
        later = knock(address)
        folder.claim_term(2, agent="r7")
        time.sleep(2 * FRESH_SECONDS)  # as if it were stopped
        heard.append(await asyncio.to_thread(later.recv, 4096))
        assert await asyncio.wait_for(running, 20) is None
        for line in (first, later):
            line.close()
        return heard[0], heard[1]

    welcome, nothing = asyncio.run(answers())
    assert b'"welcome"' in welcome
    assert nothing == b""


def test_nobody_is_sent_away_by_a_coordinator_that_hands_over(tmp_path: Path) -> None:
    """Who has said hello meanwhile, and nothing yet was answered, is for the next one."""
    folder = RunFolder.create(tmp_path / "run", SPEC)
    folder.claim_term(1, agent="b0")

    async def answer() -> bytes:
        coordinator, running, address = await in_office(folder)
        coordinator._run.fence.holds = slow(coordinator._run.fence.holds)  # type: ignore[method-assign]
        with knock(address) as line:
            await asyncio.sleep(SLOW / 2)
            coordinator.resign()
            await asyncio.sleep(2 * SLOW)
            heard = await asyncio.to_thread(line.recv, 4096)
        assert await asyncio.wait_for(running, 20) is None
        return heard

    assert asyncio.run(answer()) == b""


def test_a_baseline_that_comes_when_the_training_is_over_does_not_make_it_fail(tmp_path: Path) -> None:
    """It has started its worker by the time it is told to go, and ends it by SIGTERM."""
    folder = RunFolder.create(tmp_path / "run", SPEC)
    folder.claim_term(1, agent="r7")

    async def code() -> int | None:
        coordinator, running, address = await in_office(folder)
        coordinator._run.completed = coordinator._run.finishing = True
        line = knock(address)
        line.sendall(encode("spawned", worker="b0.0.0"))
        line.sendall(encode("exited", worker="b0.0.0", code=-15, tail=[]))
        told = await asyncio.to_thread(line.makefile().readlines, 1)
        line.close()
        assert "welcome" in told[0]
        return await asyncio.wait_for(running, 20)

    assert asyncio.run(code()) == 0
    status = folder.status()
    assert status is not None
    assert status.state == "finished"


@pytest.mark.parametrize("hands_over", [False, True])
def test_a_run_in_restart_mode_that_has_ended_or_goes_on_elsewhere_does_not_wait_for_nodes(
    hands_over: bool, tmp_path: Path
) -> None:
    """Its agents were told to go, or go to the next coordinator; the status says why it has failed."""
    folder = RunFolder.create(tmp_path / "run", replace(SPEC, mode="restart"))
    folder.claim_term(1, agent="b0")

    async def message() -> str:
        coordinator, running, address = await in_office(folder)
        with knock(address) as line:
            line.sendall(encode("ranks", of="offered", generation=1, host="n1", port=1))
            line.sendall(encode("ranks", of="began", generation=1))
            while coordinator._run.journal.status.generation == 0:
                await asyncio.sleep(0.01)
            if hands_over:
                coordinator.resign()
            else:
                coordinator.fail("it hangs")
            while (status := folder.status()) is None or (status.state != "failed" and not running.done()):
                await asyncio.sleep(0.01)
        await asyncio.wait_for(running, 20)
        return coordinator._run.journal.status.message

    assert asyncio.run(message()) == ("" if hands_over else "it hangs")
    told = ["started", "joined"] if hands_over else ["started", "joined", "failed"]
    assert [event.event for event in folder.events()] == told


def test_a_run_that_has_failed_does_not_wait_for_workers(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", SPEC)
    folder.claim_term(1, agent="b0")

    async def message() -> str:
        coordinator = Coordinator(folder, FakeSlurm(), 1)
        coordinator.fail("it hangs")
        coordinator._record(Waiting(0, 1))
        return coordinator._run.journal.status.message

    assert asyncio.run(message()) == ""

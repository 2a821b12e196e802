"""A coordinator that cannot write where it listens ends nothing: workers train on, and it is found later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_terms import until

from hpctools.elastic import agent_line, publishing
from hpctools.elastic.agent import COMPUTED_SECONDS, Agent
from hpctools.elastic.agent_line import AgentLine
from hpctools.elastic.agent_place import Place
from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.folder import CoordinatorAddress, RunFolder
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError
from hpctools.testing.slurm import FakeSlurm

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 1, 1, ("true",), "/", (), "/r.sh", "now")
LIMIT = 20.0


class FullFolder(RunFolder):
    """One in which no address can be written until there is space."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.has_space, self.refused = False, 0

    def write_coordinator(self, address: CoordinatorAddress) -> None:
        if not self.has_space:
            self.refused += 1
            raise ElasticError(f"cannot write {self.path}/terms/2.json: No space left on device")
        super().write_coordinator(address)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FullFolder:
    monkeypatch.setattr(publishing, "PAUSE_SECONDS", 0.01)
    folder = FullFolder(RunFolder.create(tmp_path / "run", SPEC).path)
    folder.claim_term(1, agent="b0")
    folder.claim_term(2, agent="b0")
    return folder


def warnings_of(folder: RunFolder) -> list[str]:
    return [event.detail["message"] for event in folder.events() if event.event == "warning"]


def test_it_is_tried_again_until_there_is_space(folder: FullFolder) -> None:
    async def scene() -> None:
        coordinator = Coordinator(folder, FakeSlurm(), 1, term=2)
        running = asyncio.ensure_future(coordinator.run())
        await until(lambda: folder.refused > 3)
        assert not running.done()
        folder.has_space = True
        await until(folder.coordinator)
        coordinator.cancel("enough")
        assert await asyncio.wait_for(running, LIMIT) == 143

    asyncio.run(scene())
    (said,) = warnings_of(folder)
    assert said.startswith("nobody finds the coordinator: cannot write ")
    assert said.endswith("No space left on device; workers train on, and it is tried again")


@pytest.mark.parametrize("why", ["another one is in office", "the node has to go"])
def test_it_is_given_up_when_it_is_of_no_use_any_more(folder: FullFolder, why: str) -> None:
    async def scene() -> None:
        coordinator = Coordinator(folder, FakeSlurm(), 1, term=2)
        running = asyncio.ensure_future(coordinator.run())
        await until(lambda: folder.refused > 3)
        if why == "the node has to go":
            coordinator.resign()
        else:
            folder.claim_term(3, agent="r7")
        assert await asyncio.wait_for(running, LIMIT) is None

    asyncio.run(scene())
    assert folder.coordinator() is None


class Clock:
    """Time of an event loop, as a test wants it; sleeping lets it pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("trains_for", "gives_up_after"), [(0.0, 60.0), (30.0, 90.0), (3000.0, 3060.0), (1e9, 3600.0)]
)
def test_agents_look_for_it_as_long_as_their_workers_train_but_not_for_ever(
    folder: FullFolder, monkeypatch: pytest.MonkeyPatch, trains_for: float, gives_up_after: float
) -> None:
    clock = Clock()
    stand_in = SimpleNamespace(
        get_running_loop=lambda: SimpleNamespace(time=lambda: clock.now),
        sleep=clock.sleep,
        Event=lambda: None,
        TimeoutError=asyncio.TimeoutError,
    )
    monkeypatch.setattr(agent_line, "asyncio", stand_in)
    monkeypatch.setattr(agent_line, "LOOK_SECONDS", 5.0)
    succession: Any = SimpleNamespace(unreached=lambda now, published: 0, problem=None)
    trains: Callable[[], bool] = lambda: clock.now - 1000.0 <= trains_for  # noqa: E731
    line = AgentLine(folder, "t-1", succession, dict, lambda message: None, trains=trains)
    with pytest.raises(ElasticError, match=rf"no coordinator of run t-1 in {gives_up_after:g} s"):
        asyncio.run(line._connect())
    assert clock.now - 1000.0 == pytest.approx(gives_up_after, abs=5.0)


def test_an_agent_s_workers_train_while_one_of_them_computes(tmp_path: Path) -> None:
    async def scene() -> None:
        node = Agent(RunFolder.create(tmp_path / "run", SPEC), Place("replica", 7, 0, "n1"), FakeSlurm())
        node._busy = SimpleNamespace(look=lambda: busy)  # type: ignore[assignment]
        busy: list[str] = []
        assert (node._life(), node._trains()) == ({}, False)
        busy = ["r7.0.0"]
        assert (node._life(), node._trains()) == ({"busy": busy}, True)
        busy = []
        assert (node._life(), node._trains()) == ({}, True), "a moment ago it did"
        node._computed -= COMPUTED_SECONDS
        assert (node._life(), node._trains()) == ({}, False)

    asyncio.run(scene())

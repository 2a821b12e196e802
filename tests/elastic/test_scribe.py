"""Storage that hangs: what is to be written waits, and the coordinator goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_acting import Wire
from test_membership import started

from hpctools.elastic import coordinator as coordinator_module
from hpctools.elastic.agent_line import AgentLine
from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.fence import FRESH_SECONDS
from hpctools.elastic.folder import CoordinatorAddress, Event, RunFolder
from hpctools.elastic.peers import Worker
from hpctools.elastic.protocol import SILENCE_SECONDS, decode, encode
from hpctools.elastic.scribe import Scribe
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.succession import Succession
from hpctools.errors import ElasticError
from hpctools.testing.slurm import FakeSlurm

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 1, 1, ("true",), "/", (), "/r.sh", "now")
HANGS = SILENCE_SECONDS + 1.0


class HangingFolder(RunFolder):
    """A folder whose storage answers only while `answers` is set."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.answers = threading.Event()
        self.answers.set()

    def _wait(self) -> None:
        assert self.answers.wait(60)

    def _terms(self, suffix: str = "") -> list[int]:
        self._wait()
        return super()._terms(suffix)

    def _text(self, name: str) -> str | None:
        self._wait()
        return super()._text(name)

    def _replace_text(self, name: str, text: str) -> None:
        self._wait()
        super()._replace_text(name, text)

    def _append(self, name: str, *values: Mapping[str, Any]) -> None:
        self._wait()
        super()._append(name, *values)


def test_work_is_done_in_order_and_waited_for() -> None:
    async def act() -> list[int]:
        scribe, done, may = Scribe(), list[int](), threading.Event()
        scribe.put(lambda: may.wait(20))
        for number in range(100):
            scribe.put(lambda number=number: done.append(number))
        assert scribe.is_behind
        assert not await scribe.has_written(0.05)
        assert done == []
        may.set()
        assert await scribe.has_written(20)
        scribe.close()
        return done

    assert asyncio.run(act()) == list(range(100))


def test_a_fault_of_what_was_to_be_done_is_told_once_and_ends_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def act() -> list[str]:
        scribe, done = Scribe(), list[str]()
        for name in ("first", "second"):
            scribe.put(lambda: 1 // 0)
            scribe.put(lambda name=name: done.append(name))
        assert await scribe.has_written(20)
        async with asyncio.timeout(20):
            while scribe.is_behind:  # it counts what it has done a moment after that
                await asyncio.sleep(0)
        scribe.close()
        return done

    assert asyncio.run(act()) == ["first", "second"]
    said = capsys.readouterr().err
    assert said.count("ZeroDivisionError") == 1
    assert "the training goes on" in said


class Line:
    """An agent's end of a connection with a coordinator."""

    def __init__(self, address: CoordinatorAddress) -> None:
        self._address = address

    async def __aenter__(self) -> Line:
        self.reader, self.writer = await asyncio.open_connection(self._address.host, self._address.port)
        about = {"agent": "b0", "baseline": True, "place": 0, "node": "n1", "job_id": 1}
        self.say("hello", role="agent", token=self._address.token, **about)
        await self.until("welcome")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    def say(self, kind: str, **fields: object) -> None:
        self.writer.write(encode(kind, **fields))

    async def until(self, kind: str) -> None:
        while decode(await asyncio.wait_for(self.reader.readline(), 20))["kind"] != kind:
            pass

    async def longest_silence(self, seconds: float) -> float:
        """Between two signs of life, while we show signs of our own."""
        loop = asyncio.get_running_loop()
        began = last = loop.time()
        longest = 0.0
        while last < began + seconds:
            await self.until("beat")
            self.say("beat")
            longest, last = max(longest, loop.time() - last), loop.time()
        return longest


def test_agents_hear_the_coordinator_while_storage_hangs(tmp_path: Path) -> None:
    """Else another one takes over, for nothing; what happened meanwhile is written afterwards, in order."""
    made = RunFolder.create(tmp_path / "run", SPEC)
    folder = HangingFolder(made.path)
    folder.claim_term(1, agent="b0")
    notices: Sequence[str] = ("rebalance", "spot", "rebalance")

    async def act() -> None:
        coordinator = Coordinator(folder, FakeSlurm(), 1)
        running = asyncio.ensure_future(coordinator.run())
        while (address := made.coordinator()) is None:
            await asyncio.sleep(0.01)
        async with Line(address) as line:
            folder.answers.clear()
            threading.Timer(HANGS, folder.answers.set).start()
            for what in notices:
                line.say("notice", what=what)
            assert await line.longest_silence(HANGS) < SILENCE_SECONDS / 2
            coordinator.cancel("enough")
            await line.until("shutdown")
            status = made.status()
            assert status is not None
            assert status.state == "cancelled", "before anybody is told to go"
        assert await asyncio.wait_for(running, 20) == 143

    asyncio.run(act())
    events = made.events()
    assert [event.detail["what"] for event in events if event.event == "notice"] == list(notices)
    assert events[-1].event == "cancelled"


def cancelled_while_storage_hangs(
    made: RunFolder, then: Callable[[Coordinator, HangingFolder], Awaitable[None]]
) -> tuple[int | None, list[dict[str, Any]]]:
    """The exit code of a coordinator to which this happens, and what it has told its worker to save."""
    folder, wire, worker = HangingFolder(made.path), Wire(), "b0.0.0"
    folder.claim_term(1, agent="b0")

    async def act() -> int | None:
        coordinator = Coordinator(folder, FakeSlurm(), 1)
        running = asyncio.ensure_future(coordinator.run())
        while made.coordinator() is None:
            await asyncio.sleep(0.01)
        run: Any = coordinator._run
        run.membership = started([worker], (1,))
        run.roster.workers[worker] = Worker(wire, worker, "b0", time.monotonic())  # type: ignore[arg-type]
        folder.answers.clear()
        await until(lambda: time.monotonic() - run.fence._asked > FRESH_SECONDS)  # it asks again
        coordinator.cancel("enough")
        await until(lambda: wire.said("save"))
        await then(coordinator, folder)
        return await asyncio.wait_for(running, 20)

    freeing = threading.Timer(50, folder.answers.set)  # else a failure would not be told
    freeing.start()
    code = asyncio.run(act())
    assert freeing.is_alive(), "storage was waited for"
    freeing.cancel()
    folder.answers.set()
    return code, wire.said("save")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_run_that_is_cancelled_saves_and_ends_though_storage_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is in office cannot be found out, and Slurm kills all after KillWait."""
    monkeypatch.setattr(coordinator_module, "CLOSING_SECONDS", 0.2)

    async def then(coordinator: Coordinator, folder: HangingFolder) -> None:
        coordinator._last_save.hurry()

    made = RunFolder.create(tmp_path / "run", SPEC)
    code, (order,) = cancelled_while_storage_hangs(made, then)
    assert (code, order["why"], order["urgent"]) == (143, "enough", True)


def test_who_finds_out_while_it_saves_that_it_was_replaced_goes_without_a_word(tmp_path: Path) -> None:
    made = RunFolder.create(tmp_path / "run", SPEC)

    async def then(coordinator: Coordinator, folder: HangingFolder) -> None:
        made.claim_term(2, agent="r7")
        folder.answers.set()
        await until(lambda: coordinator._run.fence.lost)
        coordinator._last_save.hurry()

    assert cancelled_while_storage_hangs(made, then)[0] is None
    assert "cancelled" not in [event.event for event in made.events()]


def test_who_resigns_first_writes_down_what_it_has_seen(tmp_path: Path) -> None:
    made = RunFolder.create(tmp_path / "run", SPEC)
    folder = HangingFolder(made.path)
    folder.claim_term(1, agent="b0")

    async def act() -> None:
        coordinator = Coordinator(folder, FakeSlurm(), 1)
        running = asyncio.ensure_future(coordinator.run())
        while made.coordinator() is None:
            await asyncio.sleep(0.01)
        folder.answers.clear()
        coordinator._run.warn("the last thing")
        coordinator.resign()
        await asyncio.sleep(0.3)
        folder.answers.set()
        assert await asyncio.wait_for(running, 20) is None

    asyncio.run(act())
    assert made.events()[-1].detail == {"message": "the last thing"}


def test_what_happens_while_the_disk_is_full_is_written_when_there_is_room(tmp_path: Path) -> None:
    """By itself, though nothing else happens."""
    made = RunFolder.create(tmp_path / "run", SPEC)
    made.claim_term(1, agent="b0")
    file, aside = made.path / "events.jsonl", made.path / "aside"

    async def act() -> None:
        coordinator = Coordinator(made, FakeSlurm(), 1)
        running = asyncio.ensure_future(coordinator.run())
        while (address := made.coordinator()) is None:
            await asyncio.sleep(0.01)
        async with Line(address) as line:
            file.rename(aside)
            file.symlink_to("/dev/full")
            for number in range(5):
                coordinator._run.warn(f"thing {number}")
            assert await line.longest_silence(1.0) < SILENCE_SECONDS / 2
            aside.replace(file)
            async with asyncio.timeout(20):
                while "thing 4" not in file.read_text():
                    await line.until("beat")
                    line.say("beat")
            coordinator.cancel("enough")
            await line.until("shutdown")
        assert await asyncio.wait_for(running, 20) == 143

    asyncio.run(act())
    told = [event.detail["message"] for event in made.events() if event.event in ("warning", "cancelled")]
    assert told == [*(f"thing {number}" for number in range(5)), "enough"]


def test_an_agent_that_looks_for_its_coordinator_goes_on_while_storage_hangs(tmp_path: Path) -> None:
    """In restart mode it has to end its ranks in time, whoever coordinates."""
    folder = HangingFolder(RunFolder.create(tmp_path / "run", SPEC).path)
    claimed: list[int] = []

    def appoint(term: int) -> Coordinator:
        claimed.append(term)
        return Coordinator(folder, FakeSlurm(), 1, term)

    async def act() -> None:
        succession = Succession(folder, "b0", appoint, is_first=True)
        line = AgentLine(folder, "t-1", succession, lambda: {"agent": "b0"}, lambda message: None)
        folder.answers.clear()
        threading.Timer(HANGS, folder.answers.set).start()  # whatever happens
        keeping = asyncio.ensure_future(line.keep())
        await asyncio.sleep(0.05)
        assert not folder.answers.is_set()
        folder.answers.set()
        async with asyncio.timeout(20):
            while not claimed:
                await asyncio.sleep(0.01)
        keeping.cancel()
        succession.resign()
        assert succession.work is not None
        assert await asyncio.wait_for(succession.work, 20) is None

    asyncio.run(act())
    assert claimed == [1]


class LateFolder(RunFolder):
    """Takes what is the end of its run only when that has been tried three times."""

    tries = 0

    def append_events(self, *events: Event) -> None:
        ends = any(event.event == "cancelled" for event in events)
        self.tries += ends
        if ends and self.tries < 3:
            raise ElasticError("cannot write events.jsonl: Input/output error")
        super().append_events(*events)


def test_the_last_event_is_tried_again_before_the_coordinator_goes(tmp_path: Path) -> None:
    """Else the run's account ends before its end, which its status tells all the same."""
    folder = LateFolder(RunFolder.create(tmp_path / "run", SPEC).path)
    folder.claim_term(1, agent="b0")

    async def act() -> None:
        coordinator = Coordinator(folder, FakeSlurm(), 1)
        running = asyncio.ensure_future(coordinator.run())
        while folder.coordinator() is None:
            await asyncio.sleep(0.01)
        coordinator.cancel("enough")
        assert await asyncio.wait_for(running, 20) == 143

    asyncio.run(act())
    status = folder.status()
    assert status is not None
    assert (folder.events()[-1].event, status.state) == ("cancelled", "cancelled")

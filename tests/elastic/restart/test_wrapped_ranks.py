"""Scripts behind a wrapper that forks, has no handler and dies of SIGTERM: theirs has its time."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from one_node import BEGIN, spec_of, until

from hpctools.elastic.folder import RunFolder
from hpctools.elastic.left_behind import Process
from hpctools.elastic.processes import Post
from hpctools.elastic.restart import handlers, ranks
from hpctools.elastic.restart.node import NodeRanks

# Its handler saves once somebody writes into a pipe: until then it is under way.
SAVES = """
import os, pathlib, signal
def save(*_):
    open("pipe").read()
    pathlib.Path("saved").touch()
    os._exit(0)
signal.signal(signal.SIGTERM, save)
pathlib.Path("ready").write_text(str(os.getpid()))
while True:
    signal.pause()
"""
NO_HANDLER = """
import os, pathlib, signal
pathlib.Path("ready").write_text(str(os.getpid()))
while True:
    signal.pause()
"""
# As behind `timeout`, or in a shell with `set -m`.
OWN_GROUP = "import os; os.setpgid(0, 0)\n"
# As torch's loading processes: the handler only ends them.
WORKERS = """
import os, pathlib, signal
reading, writing = os.pipe()
if os.fork() == 0:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    os.write(writing, b"1")
    while True:
        signal.pause()
os.read(reading, 1)
pathlib.Path("ready").write_text(str(os.getpid()))
while True:
    signal.pause()
"""
ASKS = """
import os, pathlib, time
from hpctools.elastic.restart.events import elastic_event_detected
elastic_event_detected()
pathlib.Path("ready").write_text(str(os.getpid()))
while True:
    time.sleep(0.01)
"""


class Wrapped:
    """A node with one rank: a shell that waits for the script, or the script alone."""

    def __init__(self, folder: Path, script: str, *, wrapped: bool = True, then: str = "") -> None:
        (folder / "logs").mkdir()
        os.mkfifo(folder / "pipe")
        self.folder = folder
        self.said: list[dict[str, Any]] = []
        command: tuple[str, ...] = (sys.executable, "-c", script)
        if wrapped:
            command = ("sh", "-c", f"{shlex.join(command)} {then or '; exit $?'}")
        spec = spec_of(command, folder)
        self.node = NodeRanks(
            Post(RunFolder(folder), spec, "b0", lambda kind, **told: self.said.append(told))
        )

    @property
    def ended(self) -> list[dict[str, Any]]:
        return [each for each in self.said if each["of"] == "ended"]

    async def begin(self) -> None:
        self.node.obey(BEGIN)
        await until(lambda: (self.folder / "ready").exists() and bool((self.folder / "ready").read_text()))
        assert self.node._ranks is not None
        self.leader = self.node._ranks.ranks[0].pid

    def end(self, seconds: float) -> None:
        self.node.obey({"do": "end", "generation": 3, "seconds": seconds})

    def let_save(self) -> bool:
        """Whether its handler waits; then it goes on."""
        held: list[int] = []
        if self.hold(held):
            os.close(held.pop())
            return True
        return False

    def hold(self, held: list[int]) -> bool:
        """Whether its handler waits; it goes on when what is put into the list is closed."""
        try:
            held.append(os.open(self.folder / "pipe", os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    def left(self) -> list[int]:
        """What still runs of it."""
        return [each.pid for each in handlers.own_processes() if each.session == self.leader]


@pytest.mark.parametrize("script", [SAVES, OWN_GROUP + SAVES], ids=["its group", "another group"])
def test_a_script_behind_a_wrapper_has_time_to_save_though_the_wrapper_is_dead(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "LAST_WORDS_SECONDS", 0.0)  # that is not what it has time for
    made = Wrapped(tmp_path, script)

    async def run() -> None:
        await made.begin()
        made.end(60.0)
        await until(lambda: not Path(f"/proc/{made.leader}").exists())  # whoever waits for it has it
        for _ in range(1000):  # and has done with it what it would do at once
            await asyncio.sleep(0)
        await until(made.let_save)
        await until(lambda: bool(made.ended))
        await made.node.stop(0.0)

    asyncio.run(run())
    assert (tmp_path / "saved").exists()
    (ended,) = made.ended
    assert (ended["code"], ended["ours"]) == (-signal.SIGTERM, True)


@pytest.mark.parametrize("script", [SAVES, OWN_GROUP + SAVES], ids=["its group", "another group"])
def test_it_has_no_more_time_than_there_is(script: str, tmp_path: Path) -> None:
    made = Wrapped(tmp_path, script)

    async def run() -> None:
        await made.begin()
        made.end(0.2)
        await until(lambda: bool(made.ended))
        await made.node.stop(0.0)

    asyncio.run(run())
    assert not (tmp_path / "saved").exists()
    assert made.left() == []


@pytest.mark.parametrize(
    ("script", "wrapped"),
    [
        (NO_HANDLER, True),
        (OWN_GROUP + NO_HANDLER, True),
        (ASKS, True),
        (OWN_GROUP + ASKS, True),
        (WORKERS, False),
        (WORKERS, True),
    ],
)
def test_a_script_without_a_handler_of_its_own_is_ended_at_once(
    script: str, wrapped: bool, tmp_path: Path
) -> None:
    """Also with loading processes that have one, which ends them."""
    made = Wrapped(tmp_path, script, wrapped=wrapped)

    async def run() -> float:
        await made.begin()
        began = time.monotonic()
        made.end(60.0)
        await until(lambda: bool(made.ended))
        took = time.monotonic() - began
        await made.node.stop(0.0)
        return took

    assert asyncio.run(run()) < 20.0
    assert made.left() == []


def test_what_a_rank_leaves_behind_when_it_ends_by_itself_does_not_outlive_it(tmp_path: Path) -> None:
    """It would write beside the next generation's."""
    made = Wrapped(tmp_path, OWN_GROUP + SAVES, then="& read x <go; exit 3")
    os.mkfifo(tmp_path / "go")

    async def run() -> None:
        await made.begin()
        (tmp_path / "go").write_text("x\n")
        await until(lambda: bool(made.ended))
        assert made.left() == []
        await made.node.stop(0.0)

    asyncio.run(run())
    assert made.ended[0]["code"] == 3


def test_all_ranks_need_one_look_at_the_processes_and_none_where_each_has_a_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []
    handling = {1, 11, 21, 30}

    def found() -> list[Process]:
        looks.append(1)
        members = {1: [1, 10], 2: [2, 11, 20], 3: [3, 22], 9: [30]}
        of_sessions = [Process(pid, own, own, 0) for own, pids in members.items() for pid in pids]
        return [*of_sessions, Process(21, 20, 2, 0)]

    monkeypatch.setattr(handlers, "own_processes", found)
    monkeypatch.setattr(handlers, "handles_term", lambda pid: pid in handling)
    assert handlers.behind_wrappers([1], looks=True) == {}
    assert handlers.behind_wrappers([1, 2], looks=False) == {2: handlers.Behind()}
    assert looks == []
    handling_of_2 = [Process(11, 2, 2, 0), Process(21, 20, 2, 0)]
    assert handlers.behind_wrappers([1, 2, 3], looks=True) == {
        2: handlers.Behind(handling_of_2, {20}),
        3: handlers.Behind(),
    }
    assert len(looks) == 1

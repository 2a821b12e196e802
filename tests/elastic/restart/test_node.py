"""The agent's part, on its own: what it refuses, and how it ends its ranks."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from one_node import BEGIN, until
from scarce import open_files, scarce

from hpctools.elastic.folder import RunFolder
from hpctools.elastic.processes import Post
from hpctools.elastic.protocol import LINE_LIMIT, encode
from hpctools.elastic.restart import ranks
from hpctools.elastic.restart.node import TERM_NEWS_SECONDS, NodeRanks
from hpctools.elastic.spec import RunSpec

SPEC = RunSpec("r-1", "r", "nlp1", "", 1, 1, 2, ("true",), "/", (), "", "", mode="restart")


def obeyed(tmp_path: Path, *, leaves: bool) -> list[dict[str, Any]]:
    """What an agent says to the order to begin."""
    said: list[dict[str, Any]] = []

    async def run() -> None:
        node = NodeRanks(Post(RunFolder(tmp_path), SPEC, "b0", lambda kind, **fields: said.append(fields)))
        if leaves:
            node.expect_no_restart(5.0)
        node.obey(BEGIN)
        await node.stop(0.0)

    asyncio.run(run())
    return said


def ends(code: int, *said: str) -> list[dict[str, Any]]:
    how = {"ago": pytest.approx(0.0, abs=5.0), "ours": False}
    end = {"of": "ended", "generation": 3, "code": code, "told": 0, "said": list(said), **how}
    return [{**end, "local": local} for local in (0, 1)]


def test_a_node_that_has_to_go_begins_nothing(tmp_path: Path) -> None:
    assert obeyed(tmp_path, leaves=True) == ends(-signal.SIGTERM)


def test_a_node_whose_memory_is_full_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ranks, "SlotFolder", full)
    words = "no room for the ranks' slots: [Errno 28] No space left on device"
    assert obeyed(tmp_path, leaves=False) == ends(127, words)


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_ranks_for_which_no_pipe_is_left_leave_nothing_open(
    before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that begin after them need what was opened."""
    obeyed(tmp_path, leaves=True)  # what Python opens once
    files = open_files()
    with scarce(monkeypatch, "pipe", before):
        said = obeyed(tmp_path, leaves=False)
    assert said == ends(127, "no room for the ranks' slots: [Errno 24] Too many open files")
    deadline = time.monotonic() + 30.0
    while open_files() != files:  # a log's thread closes its end by itself
        assert time.monotonic() < deadline, (files, open_files())
        time.sleep(0.01)


ASKS = """
import os, signal, time
from hpctools.elastic.restart.events import elastic_event_detected
{first}
while True:
    elastic_event_detected()
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ("", -signal.SIGKILL),
        ("signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), os._exit(7)))", 7),
    ],
)
def test_a_script_that_asks_is_ended_as_its_own_handler_wants_or_at_once(
    first: str, code: int, tmp_path: Path
) -> None:
    """Slurm may have sent it SIGTERM before; that is no reason to end it sooner."""
    said: list[dict[str, Any]] = []
    spec = replace(SPEC, command=(sys.executable, "-c", ASKS.format(first=first)), workdir=str(tmp_path))
    (tmp_path / "logs").mkdir()

    def ask(what: str) -> list[dict[str, Any]]:
        return [each for each in said if each["of"] == what]

    async def act() -> float:
        node = NodeRanks(Post(RunFolder(tmp_path), spec, "b0", lambda kind, **fields: said.append(fields)))
        node.obey(BEGIN)
        await until(
            lambda: any(all(calls for calls, _ in each["counts"].values()) for each in ask("counted"))
        )
        if not first:
            assert node._ranks is not None
            for rank in node._ranks.ranks:
                rank.signal(signal.SIGTERM)
            await until(lambda: all(rank.slot.only_notes_term for rank in node._ranks.ranks))
            assert len(node._ranks.alive) == 2
        began = time.monotonic()
        await node.stop(60.0)
        took = time.monotonic() - began
        await until(lambda: len(ask("ended")) == 2)
        return took

    assert asyncio.run(act()) < 50.0
    assert [each["code"] for each in ask("ended")] == [code, code]


def sleeping(folder: Path) -> RunSpec:
    """A run of one rank a node that does nothing for a minute, with what its folder needs."""
    sleeps = (sys.executable, "-c", "import time; time.sleep(60)")
    (folder / "logs").mkdir()
    return replace(SPEC, command=sleeps, workdir=str(folder), workers_per_node=1)


def test_an_end_by_slurms_sigterm_is_told_when_it_is_known_what_it_was_for(tmp_path: Path) -> None:
    """A job that is cancelled has not crashed; until Slurm has said so, it might have."""
    said: list[dict[str, Any]] = []
    spec = sleeping(tmp_path)

    async def run() -> None:
        node = NodeRanks(Post(RunFolder(tmp_path), spec, "b0", lambda kind, **fields: said.append(fields)))
        news = asyncio.get_running_loop().create_future()
        node.obey(BEGIN)
        await until(lambda: node._ranks is not None and len(node._ranks.alive) == 1)
        node.expect_news(news)
        assert node._ranks is not None
        node._ranks.alive[0].signal(signal.SIGTERM)
        await until(lambda: not node._ranks or not node._ranks.alive)
        await asyncio.sleep(2 * TERM_NEWS_SECONDS)
        assert [each for each in said if each["of"] == "ended"] == []
        news.set_result(None)
        await until(lambda: any(each["of"] == "ended" for each in said))
        await node.stop(0.0)

    asyncio.run(run())
    (ended,) = [each for each in said if each["of"] == "ended"]
    assert (ended["local"], ended["code"]) == (0, -signal.SIGTERM)


def ending_at_sigterm(code: int, ready: Path) -> tuple[str, ...]:
    """A script whose handler has saved, and ends; `ready` is there once it has the handler."""
    saves = (
        f"import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit({code})); "
        f"pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
    )
    return (sys.executable, "-c", saves)


def test_a_script_that_saves_at_slurms_sigterm_and_ends_well_has_not_finished(tmp_path: Path) -> None:
    """Its job was cancelled, or is out of time: jobs that wait for the run's success would begin."""
    said: list[dict[str, Any]] = []
    ready = tmp_path / "ready"
    spec = replace(sleeping(tmp_path), command=ending_at_sigterm(0, ready))

    async def run() -> None:
        node = NodeRanks(Post(RunFolder(tmp_path), spec, "b0", lambda kind, **fields: said.append(fields)))
        node.obey(BEGIN)
        await until(ready.exists)
        news = asyncio.get_running_loop().create_future()
        node.expect_news(news)
        news.set_result(None)
        assert node._ranks is not None
        node._ranks.alive[0].signal(signal.SIGTERM)
        await until(lambda: any(each["of"] == "ended" for each in said))
        assert [code for _, _, code, _ in node.report()["ranks"].values()] == [-signal.SIGTERM]
        await node.stop(0.0)

    asyncio.run(run())
    (ended,) = [each for each in said if each["of"] == "ended"]
    assert ended["code"] == -signal.SIGTERM


@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize("code", [1, 128 + signal.SIGTERM])
def test_a_script_that_saves_at_slurms_sigterm_and_ends_badly_has_not_crashed(
    code: int, is_asked: bool, tmp_path: Path
) -> None:
    """Its handler ends with a code of its own: Lightning's with 143, others with 1."""
    said: list[dict[str, Any]] = []
    ready = tmp_path / "ready"
    spec = replace(sleeping(tmp_path), command=ending_at_sigterm(code, ready))

    async def run() -> None:
        node = NodeRanks(Post(RunFolder(tmp_path), spec, "b0", lambda kind, **fields: said.append(fields)))
        node.obey(BEGIN)
        await until(ready.exists)
        news = asyncio.get_running_loop().create_future()
        if is_asked:
            node.expect_news(news)
        assert node._ranks is not None
        node._ranks.alive[0].signal(signal.SIGTERM)
        await until(lambda: node._ranks is not None and not node._ranks.alive)
        if code == 1 and not is_asked:  # nothing tells that from a crash
            assert [each["code"] for each in said if each["of"] == "ended"] == [1]
        else:
            assert [each for each in said if each["of"] == "ended"] == []
            node.expect_news(news)
        news.set_result(None)
        await until(lambda: any(each["of"] == "ended" for each in said))
        await node.stop(0.0)

    asyncio.run(run())
    (ended,) = [each for each in said if each["of"] == "ended"]
    assert ended["code"] == (code if code == 1 and not is_asked else -signal.SIGTERM)


def two_generations(
    tmp_path: Path, meanwhile: Callable[[NodeRanks], None], enough: Callable[[list[tuple[int, str]]], bool]
) -> list[tuple[int, str]]:
    """What a node tells of whom that has to begin another generation while it has ranks of one before."""
    told: list[tuple[int, str]] = []
    sleeps = (sys.executable, "-c", "import time; time.sleep(60)")
    spec = replace(SPEC, command=sleeps, workdir=str(tmp_path))
    (tmp_path / "logs").mkdir()

    def say(kind: str, **fields: Any) -> None:
        if fields["of"] != "counted":
            told.append((fields["generation"], fields["of"]))

    async def run() -> None:
        node = NodeRanks(Post(RunFolder(tmp_path), spec, "b0", say))
        node.obey(BEGIN)
        assert node._ranks is not None
        former = node._ranks
        node.obey({**BEGIN, "generation": 4})
        meanwhile(node)
        await until(lambda: not former.alive and enough(told))
        await node.stop(0.0)

    asyncio.run(run())
    return told


ONE_AFTER_THE_OTHER = [(3, "began"), (3, "ended"), (3, "ended"), (4, "began"), (4, "ended"), (4, "ended")]


def test_ranks_of_a_node_that_was_taken_for_lost_end_before_others_begin_and_as_who_they_were(
    tmp_path: Path,
) -> None:
    """They would write the same checkpoint, and their ends are not the new ones'."""
    told = two_generations(tmp_path, lambda node: None, lambda told: (4, "began") in told)
    assert told == ONE_AFTER_THE_OTHER


def test_what_is_ordered_meanwhile_is_done_afterwards(tmp_path: Path) -> None:
    def end(node: NodeRanks) -> None:
        node.obey({"do": "end", "generation": 4, "seconds": 0.0})

    assert two_generations(tmp_path, end, lambda told: told.count((4, "ended")) == 2) == ONE_AFTER_THE_OTHER


def test_what_was_ordered_before_the_line_broke_is_not_done_any_more(tmp_path: Path) -> None:
    def reconnect(node: NodeRanks) -> None:
        assert node.report()["generation"] == 3

    told = two_generations(tmp_path, reconnect, lambda told: told.count((3, "ended")) == 2)
    assert told == ONE_AFTER_THE_OTHER[:3]


def test_what_a_rank_did_last_is_told_before_its_end(tmp_path: Path) -> None:
    """It may have done all its steps between two looks: what a resize took would never be known."""
    said: list[dict[str, Any]] = []
    asks = "from hpctools.elastic.restart.events import elastic_event_detected as ask; ask(); ask(); ask()"
    spec = replace(SPEC, command=(sys.executable, "-c", asks), workdir=str(tmp_path), workers_per_node=1)
    (tmp_path / "logs").mkdir()

    async def run() -> None:
        node = NodeRanks(Post(RunFolder(tmp_path), spec, "b0", lambda kind, **fields: said.append(fields)))
        node.obey(BEGIN)
        await until(lambda: any(each["of"] == "ended" for each in said))
        await node.stop(0.0)

    asyncio.run(run())
    *_, counted, ended = said
    assert (counted["of"], counted["counts"]) == ("counted", {0: (3, 0)})
    assert (ended["of"], ended["code"]) == ("ended", 0)


def test_a_rank_that_was_killed_is_not_taken_for_one_that_we_have_ended(tmp_path: Path) -> None:
    """The order to end comes before we know of it; and what it says last is waited for."""
    said: list[dict[str, Any]] = []
    spec = replace(SPEC, command=(sys.executable, "-c", "import time; time.sleep(60)"), workdir=str(tmp_path))
    (tmp_path / "logs").mkdir()

    async def run() -> None:
        node = NodeRanks(Post(RunFolder(tmp_path), spec, "b0", lambda kind, **fields: said.append(fields)))
        node.obey(BEGIN)
        assert node._ranks is not None
        killed, _ = node._ranks.ranks
        os.kill(killed.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # who waits for it was first
            os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
        node.obey({"do": "end", "generation": 3, "seconds": 0.0})
        await until(lambda: len([each for each in said if each["of"] == "ended"]) == 2)
        ends = node.report()["ends"]
        assert [ours for _, ours in ends.values()] == [False, True]
        assert all(0 <= ago < 20 for ago, _ in ends.values())
        await node.stop(0.0)

    asyncio.run(run())
    ended = {each["local"]: each for each in said if each["of"] == "ended"}
    assert (ended[0]["code"], ended[0]["ours"], ended[1]["ours"]) == (-signal.SIGKILL, False, True)


def test_a_rank_that_we_have_ended_is_ours_also_when_the_order_comes_again_before_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[dict[str, Any]] = []
    spec = sleeping(tmp_path)

    async def run() -> None:
        node = NodeRanks(Post(RunFolder(tmp_path), spec, "b0", lambda kind, **fields: said.append(fields)))
        node.obey(BEGIN)
        assert node._ranks is not None
        (rank,), spoken = node._ranks.ranks, asyncio.Event()
        monkeypatch.setattr(rank.words, "spoken", lambda seconds: spoken.wait())
        first = asyncio.ensure_future(node._ranks.end(0.0))
        await until(lambda: rank.told_to_end and ranks._has_ended(rank.pid))
        second = asyncio.ensure_future(node._ranks.end(0.0))
        await asyncio.sleep(0)
        spoken.set()
        await asyncio.wait_for(asyncio.gather(first, second), 20)
        await node.stop(0.0)

    asyncio.run(run())
    (ended,) = [each for each in said if each["of"] == "ended"]
    assert ended["ours"]


def test_an_exception_of_megabytes_is_told_in_a_message_that_the_coordinator_takes(tmp_path: Path) -> None:
    """One that is too long ends the connection, and the agent's next hello has it again: for ever."""
    said: list[dict[str, Any]] = []
    raises = (
        "import json, os; message = {'message': 'ValueError: ' + 'x' * (2 << 20)}; "
        "json.dump({'message': message}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w')); "
        "raise SystemExit(1)"
    )
    spec = replace(sleeping(tmp_path), command=(sys.executable, "-c", raises))

    async def run() -> None:
        node = NodeRanks(Post(RunFolder(tmp_path), spec, "b0", lambda kind, **fields: said.append(fields)))
        node.obey(BEGIN)
        await until(lambda: any(each["of"] == "ended" for each in said))
        assert len(encode("hello", ranks=node.report())) < LINE_LIMIT
        await node.stop(0.0)

    asyncio.run(run())
    (ended,) = [each for each in said if each["of"] == "ended"]
    assert len(encode("ranks", **ended)) < LINE_LIMIT
    assert ended["said"][-1].startswith("ValueError: xxx")

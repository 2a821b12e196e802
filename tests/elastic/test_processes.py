"""What an agent keeps of its workers' last words."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scarce import open_files, scarce

from hpctools.elastic.folder import RunFolder
from hpctools.elastic.processes import LINE_CHARACTERS, TAIL_LINES, LastWords, Post, Workers, in_own_thread
from hpctools.elastic.protocol import LINE_LIMIT
from hpctools.elastic.recovery.listening import Listener
from hpctools.elastic.spec import RunSpec


def heard(*said: bytes) -> list[str]:
    """The last words of who says this."""

    async def listen() -> list[str]:
        words = LastWords()
        with words.writing() as pipe:
            for chunk in said:
                await asyncio.to_thread(_write, pipe, chunk)
        await words.spoken(30.0)
        return list(words.tail)

    return asyncio.run(listen())


def _write(pipe: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(pipe, view) :]


def test_the_last_lines_are_kept_however_they_come() -> None:
    lines = [f"line {number}" for number in range(TAIL_LINES + 5)]
    assert heard(*(line.encode() + b"\n" for line in lines)) == lines[5:]
    assert heard(b"one\ntw", b"o\r\n\n", b"three, without an end") == ["one", "two", "three, without an end"]


def test_of_a_progress_bar_its_last_state_is_kept() -> None:
    bar = b"".join(b"\rstep %d" % number for number in range(1000))
    assert heard(bar + b"\n", bar + b"\r", b"Killed\n") == ["step 999", "Killed"]


@pytest.mark.parametrize("word", ["\u2588", "\0", "x"])
def test_words_without_end_fit_into_a_message(word: str) -> None:
    """A line that is too long for the coordinator would cost the agent its place in the run."""
    endless = word.encode() * (1 << 21)
    tail = heard(endless, *([b"\n" + endless[: 1 << 18]] * TAIL_LINES))
    assert len(tail) == TAIL_LINES
    assert {len(line) for line in tail} == {LINE_CHARACTERS}
    assert len(json.dumps({"kind": "exited", "worker": "w", "code": 1, "tail": tail})) < LINE_LIMIT / 4


SAYS = "import sys; print('trained'); sys.stderr.write('at the end\\n'); sys.exit(3)"


def told_by_a_worker(folder: RunFolder, listener: Listener | None = None) -> dict[str, dict[str, Any]]:
    """What is said about a worker, from its start to its end, by the kind of message."""
    said: dict[str, dict[str, Any]] = {}

    def say(kind: str, **told: Any) -> None:
        said[kind] = told

    async def scene() -> None:
        workers = Workers(Post(folder, folder.spec(), "b1", say, listener=listener))
        workers.spawn(0)
        workers.expect_no_restart(60.0)
        await asyncio.wait_for(workers.all_ended(), 60)

    asyncio.run(scene())
    return said


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    command = (sys.executable, "-c", SAYS)
    return RunFolder.create(
        tmp_path / "run",
        RunSpec("t-1", "t", "u", "", 1, 2, 1, command, str(tmp_path), (), "/r", "now"),
    )


def test_a_log_that_cannot_be_opened_is_kept_on_the_node_and_the_worker_starts(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    log = folder.logs / "b1.0.0.out"
    log.mkdir()
    said = told_by_a_worker(folder)
    (kept,) = tmp_path.glob("hpctools-b1.0.0-*.out")
    assert kept.read_text() == "trained\n"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert said["exited"] == {"worker": "b1.0.0", "code": 3, "tail": ["at the end"]}
    assert said["warning"]["message"] == (
        f"cannot write {log}: Is a directory; what it was for goes to {kept} on {os.uname().nodename}, and "
        "the worker trains all the same; free space or quota there for the next one"
    )


def test_where_no_log_can_be_written_the_worker_starts_and_its_last_words_are_told(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And our own standard error is on a full disk, too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nothing"))
    folder.logs.rmdir()
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stderr", SimpleNamespace(fileno=full.fileno))
        said = told_by_a_worker(folder)
    assert said["exited"]["tail"] == ["at the end"]
    assert "goes nowhere" in said["warning"]["message"]


FILES, THREADS = (
    f"[Errno {errno.EMFILE}] Too many open files",
    f"[Errno {errno.EAGAIN}] can't start new thread",
)


@pytest.mark.parametrize(
    ("what", "before", "why"),
    [
        *(("pipe", number, FILES) for number in range(4)),  # of standard error two, of standard output two
        *(("dup", number, FILES) for number in range(2)),
        *(("thread", number, THREADS) for number in range(2)),
    ],
)
def test_a_worker_for_which_nothing_is_left_could_not_be_started_and_is_told_so(
    what: str, before: int, why: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would hear of it again; and what was opened for it is there for the next one."""
    told_by_a_worker(folder)  # what Python opens once
    files, listener = open_files(), Listener((), lambda *_, **__: None)
    with scarce(monkeypatch, what, before):
        said = told_by_a_worker(folder, listener)
    assert said["exited"] == {"worker": "b1.0.0", "code": 127, "tail": [why]}
    deadline = time.monotonic() + 30.0
    # What other tests have left may be closed meanwhile; a log's thread closes its end by itself.
    while more := open_files() - files:
        assert time.monotonic() < deadline, more
        time.sleep(0.01)


def test_a_process_is_waited_for_as_soon_as_there_is_a_thread_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It runs already: nobody would hear of its end."""
    tries, start = itertools.count(), threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if next(tries) < 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert asyncio.run(asyncio.wait_for(in_own_thread(lambda: 7), 30.0)) == 7

"""What a worker prints, on its way past the policy's log rules to its log or the job's output."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpctools.elastic.printed import Printed
from hpctools.elastic.processes import LastWords
from hpctools.elastic.recovery.listening import Listener
from hpctools.elastic.worker_log import WorkerLog

LIMIT = 90.0  # seconds, of any wait
STORAGE_SECONDS = 40.0  # after which storage is back whatever happens, so that a failure is told
DATA = b"".join(b"%01023d\n" % number for number in range(4096))
UNUSUAL = b"\x00\xff progress 10%\rprogress 20%\nno end"


class Counting(Listener):
    """Knows how much it has heard."""

    bytes_heard = 0

    def heard(self, worker: str, stream: int, chunk: bytes) -> None:
        self.bytes_heard += len(chunk)
        super().heard(worker, stream, chunk)


class Storage:
    """Hangs: it takes nothing more until it is freed; then all that comes is read."""

    def __init__(self, opened: Callable[[], int]) -> None:
        self.came = b""
        self.freed_in_time = False
        self._opened = opened
        self._freed = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def free(self) -> None:
        self._freed.set()

    def end(self) -> bytes:
        self._thread.join(LIMIT)
        return self.came

    def _read(self) -> None:
        self.freed_in_time = self._freed.wait(STORAGE_SECONDS)
        with os.fdopen(self._opened(), "rb") as file:
            self.came = file.read()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.01)


def write_all(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


async def scene(log: Path | None, data: bytes, storage: Storage | None) -> None:
    """A worker prints; the agent's loop goes on meanwhile."""
    listener = Counting([], lambda *_, **__: None)
    printed = Printed("b0.0.0", log, pytest.fail, listener)
    with printed.writing() as output:
        assert output is not None
        mine = os.dup(output)
    room = fcntl.fcntl(mine, fcntl.F_GETPIPE_SZ)
    printing = asyncio.ensure_future(asyncio.to_thread(write_all, mine, data))
    if storage is not None:
        await until(lambda: listener.bytes_heard > room)
        storage.free()
    await asyncio.wait_for(printing, LIMIT)
    await printed.written(LIMIT)
    assert listener.bytes_heard == len(data)


def test_output_is_copied_byte_for_byte(tmp_path: Path) -> None:
    """What the log would have had without us."""
    asyncio.run(scene(tmp_path / "out", UNUSUAL, None))
    assert (tmp_path / "out").read_bytes() == UNUSUAL


def test_a_log_on_storage_that_hangs_does_not_hold_the_agent(tmp_path: Path) -> None:
    """Nobody reads the named pipe, as storage that does not answer: to open it waits."""
    log = tmp_path / "out"
    os.mkfifo(log)
    storage = Storage(lambda: os.open(log, os.O_RDONLY))
    asyncio.run(scene(log, DATA, storage))
    assert storage.freed_in_time
    assert storage.end() == DATA


def test_a_job_s_output_that_hangs_does_not_hold_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(fileno=lambda: writing))
    storage = Storage(lambda: reading)
    asyncio.run(scene(None, DATA, storage))
    os.close(writing)
    assert storage.freed_in_time
    assert storage.end() == DATA


class Errors:
    """Our own standard error, which hangs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reading, self._writing = os.pipe()
        self._file = os.fdopen(self._writing, "w")
        monkeypatch.setattr(sys, "stderr", self._file)
        self.storage = Storage(lambda: reading)

    def end(self) -> bytes:
        self._file.close()
        return self.storage.end()


def test_errors_that_nobody_takes_do_not_hold_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    errors, heard = Errors(monkeypatch), list[bytes]()

    async def scene() -> None:
        words = LastWords(heard.append)
        with words.writing() as pipe:
            mine = os.dup(pipe)
        room = fcntl.fcntl(mine, fcntl.F_GETPIPE_SZ)
        saying = asyncio.ensure_future(asyncio.to_thread(write_all, mine, DATA))
        await until(lambda: sum(map(len, heard)) > room)
        errors.storage.free()
        await asyncio.wait_for(saying, LIMIT)
        await words.spoken(LIMIT)

    asyncio.run(scene())
    assert errors.storage.freed_in_time
    assert errors.end() == b"".join(heard) == DATA


def test_last_words_are_kept_though_nobody_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a pipe holds was said before; a traceback is what a person wants to see of such a run."""
    errors, said = Errors(monkeypatch), DATA[: 3 << 19] + b"ValueError: why\n"

    async def scene() -> list[str]:
        words = LastWords()
        with words.writing() as pipe:
            await asyncio.wait_for(asyncio.to_thread(write_all, os.dup(pipe), said), LIMIT)
        await words.spoken(0.5)
        tail = list(words.tail)
        errors.storage.free()
        await words._log.written(LIMIT)
        return tail

    assert asyncio.run(scene())[-1] == "ValueError: why"
    assert errors.storage.freed_in_time
    assert errors.end() == said


def test_a_worker_does_not_wait_for_a_log_that_no_descriptor_is_left_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def scene() -> list[str]:
        warned: list[str] = []
        monkeypatch.setattr(os, "open", refused)
        log = WorkerLog(tmp_path / "out", warned.append)
        with log.writing() as output:
            printing = threading.Thread(target=write_all, args=(os.dup(output), DATA), daemon=True)
        printing.start()
        await asyncio.to_thread(printing.join, 20.0)
        assert not printing.is_alive()
        await log.written(LIMIT)
        return warned

    (warning,) = asyncio.run(scene())
    assert "Too many open files; what it was for goes nowhere" in warning

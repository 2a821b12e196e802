"""What hangs keeps neither the loop's end nor the process; what ends soon is waited for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from hpctools.elastic import brief_threads
from hpctools.elastic.brief_threads import BriefThreads

LIMIT = 30.0


def test_the_work_is_done_and_its_result_or_error_comes_back() -> None:
    async def work() -> tuple[int, BaseException]:
        asyncio.get_running_loop().set_default_executor(BriefThreads())
        with pytest.raises(ZeroDivisionError) as caught:
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(divmod, 7, 4), caught.value  # type: ignore[return-value]

    found, error = asyncio.run(work())
    assert found == (1, 3)
    assert str(error).startswith("integer division")


def test_many_wait_at_the_same_time() -> None:
    together = threading.Barrier(40)

    async def work() -> None:
        asyncio.get_running_loop().set_default_executor(BriefThreads())
        await asyncio.gather(*(asyncio.to_thread(together.wait, LIMIT) for _ in range(40)))

    asyncio.run(work())


def test_where_the_node_has_no_thread_left_it_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a coordinator that asks Slurm just then would break, and a sound run with it."""
    monkeypatch.setattr(brief_threads, "THREAD_SECONDS", 0.01)
    monkeypatch.setattr(brief_threads, "Thread", Scarce)
    Scarce.refused = 0

    async def work() -> tuple[int, int]:
        asyncio.get_running_loop().set_default_executor(BriefThreads())
        return await asyncio.to_thread(divmod, 7, 4)

    assert asyncio.run(work()) == (1, 3)
    assert Scarce.refused == 3


class Scarce(threading.Thread):
    """A thread that cannot be started the first three times."""

    refused = 0

    def start(self) -> None:
        if Scarce.refused < 3:
            Scarce.refused += 1
            raise RuntimeError("can't start new thread")
        super().start()


def test_what_is_at_work_is_waited_for_at_the_end() -> None:
    begun, done = threading.Event(), threading.Event()

    def last() -> None:
        begun.set()
        time.sleep(0.3)
        done.set()

    async def work() -> None:
        asyncio.get_running_loop().set_default_executor(BriefThreads(LIMIT))
        task = asyncio.ensure_future(asyncio.to_thread(last))
        await asyncio.to_thread(begun.wait, LIMIT)
        task.cancel()

    asyncio.run(work())
    assert done.is_set()


HANGS = """
import asyncio, threading
from hpctools.elastic.brief_threads import BriefThreads

async def work():
    asyncio.get_running_loop().set_default_executor(BriefThreads(0.2))
    begun = threading.Event()
    def hang():
        begun.set()
        threading.Event().wait()
    asyncio.ensure_future(asyncio.to_thread(hang))
    await asyncio.to_thread(begun.wait, 30)
    return 7

raise SystemExit(asyncio.run(work()))
"""


def test_what_never_comes_back_keeps_neither_the_loop_nor_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], timeout=LIMIT, check=False)
    assert done.returncode == 7

"""asyncio's threads for what waits (`asyncio.to_thread`), which keep the process's end only for a while.

What waits for storage that hangs never comes back. asyncio's own threads would be waited for, and the agent
be there until Slurm kills it, its node with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread, current_thread
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")
END_SECONDS = 5.0
THREAD_SECONDS = 0.5


class BriefThreads(ThreadPoolExecutor):
    """A thread for each piece of work, as asyncio's default executor.

    Args:
        seconds: how long `shutdown` waits for those that are at work; the process then ends without them.
    """

    def __init__(self, seconds: float = END_SECONDS) -> None:
        super().__init__(max_workers=1, thread_name_prefix="elastic-wait")  # asyncio takes no other class
        self._seconds = seconds
        self._at_work: set[Thread] = set()

    def submit(
        self, fn: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs
    ) -> Future[Result]:
        """Do the work in a thread of its own; where the node has none left for now, when it has one."""
        future: Future[Result] = Future()

        def act() -> None:
            try:
                resolve(future, lambda: fn(*args, **kwargs))
            finally:
                self._at_work.discard(current_thread())

        self._begin(act)
        return future

    def _begin(self, act: Callable[[], None]) -> None:
        thread = Thread(target=act, name="elastic-wait", daemon=True)
        self._at_work.add(thread)
        try:
            thread.start()
        except RuntimeError:
            self._at_work.discard(thread)
            asyncio.get_running_loop().call_later(THREAD_SECONDS, self._begin, act)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for who is at work, `seconds` at most."""
        deadline = time.monotonic() + (self._seconds if wait else 0.0)
        for thread in list(self._at_work):
            thread.join(max(0.0, deadline - time.monotonic()))


def resolve(future: Future[Result], work: Callable[[], Result]) -> None:
    """Do the work, and have the future tell what came of it; nothing where that was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - it is raised where that is waited for
        future.set_exception(error)

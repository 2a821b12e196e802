"""What a coordinator reads and writes in the run's folder, done in a thread of its own.

Storage may hang for seconds, and a coordinator's signs of life may not: whoever does not hear them for 2.7 s
takes it to be gone, and another one takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sys
import threading
from collections.abc import Callable

Work = Callable[[], object]


class Scribe:
    """Does work in the order in which it was given, while nobody waits.

    All methods belong to one thread, that of the coordinator's loop.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._given = self._done = 0
        self._told = False

    def put(self, work: Work) -> None:
        """Do this next; what it raises is told once, and ends nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="elastic-scribe", daemon=True)
            self._thread.start()
        self._given += 1
        self._queue.put(work)

    @property
    def is_behind(self) -> bool:
        """Whether something is still to be done."""
        return self._done != self._given

    async def has_written(self, seconds: float) -> bool:
        """Wait until all is done that was given so far, for some seconds at most; returns whether it is."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # nobody waits any more: the loop has ended
                loop.call_soon_threadsafe(done.set)

        self.put(tell)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(done.wait(), seconds)
        return done.is_set()

    def close(self) -> None:
        """Let the thread end when it has done what it was given."""
        self._queue.put(None)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next work may not fail
                self._tell(error)
            self._done += 1

    def _tell(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            print(
                f"elastic: the coordinator could not read or write the run's folder: {error!r}; the training "
                "goes on, and what it writes next is tried all the same",
                file=sys.stderr,
                flush=True,
            )

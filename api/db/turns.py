"""A lock that threads get in the order in which they asked; of `threading.Lock` some may wait for ever."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from hpctools.errors import UnreachableError


class Turns:
    """Lets one thread in at a time, first come, first served."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._queue: deque[Lock] = deque()

    @contextmanager
    def one(self, seconds: float) -> Iterator[None]:
        """Wait for one's turn, and have it for a block of code.

        Raises:
            UnreachableError: it did not come within `seconds`.
        """
        mine = Lock()
        mine.acquire()
        with self._guard:
            self._queue.append(mine)
            if self._queue[0] is mine:
                mine.release()
        try:
            if not mine.acquire(timeout=seconds):
                raise UnreachableError(f"others have been at work for {seconds:g} s", "try again")
            yield
        finally:
            self._leave(mine)

    def free(self) -> bool:
        """Whether nobody has the turn now."""
        return not self._queue

    def _leave(self, mine: Lock) -> None:
        with self._guard:
            was_first = self._queue[0] is mine
            self._queue.remove(mine)
            if was_first and self._queue:
                self._queue[0].release()

"""The last states of the training in this worker's memory, to roll back to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from hpctools.elastic.checkpoint.copies import HostCopy


class Snapshots:
    """A ring of copies, taken every so many steps; all workers that were there take the same ones.

    Args:
        count: how many are kept; 0: none are taken.
        steps: between two of them.
    """

    def __init__(self, count: int, steps: int) -> None:
        self._count = count
        self._steps = steps
        self._ring: deque[tuple[int, HostCopy]] = deque()

    def consider(self, step: int, capture: Callable[[], Mapping[str, Any]]) -> None:
        """Between two steps: copy the state when it is time; the oldest copy's memory is used again.

        Raises:
            Exception: there is no memory for it, or something in it cannot be copied; those before are kept.
        """
        if not self._count or step % self._steps or (self._ring and self._ring[-1][0] == step):
            return
        full = len(self._ring) >= self._count
        copy = self._ring[0][1] if full else HostCopy()
        write = copy.prepared(capture())
        if full:
            self._ring.popleft()  # it is overwritten now
        write()
        self._ring.append((step, copy))

    def go_back(self, step: int) -> Any | None:
        """The newest copied state of at most so many completed steps; None: there is none.

        Later copies are forgotten: they are of what is given up.
        """
        while self._ring and self._ring[-1][0] > step:
            self._ring.pop()
        return self._ring[-1][1].state() if self._ring else None

    def forget(self) -> None:
        """The state has come from elsewhere."""
        self._ring.clear()

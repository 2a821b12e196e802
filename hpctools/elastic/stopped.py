"""Processes that somebody has stopped (SIGSTOP): their node's agent sees them before they are missed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

LOOK_SECONDS = 0.2
LOOKS = 4  # in a row: a job that is suspended as a whole, its agent too, stops and wakes in pieces


class Workers(Protocol):
    """Those of a node."""

    @property
    def pids(self) -> Mapping[str, int]:
        """The process of each worker that runs, by the worker's name."""
        ...


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped (state T of proc(5)); one that a debugger holds (state t) is not."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


class StoppedWatch:
    """Tells of workers that stand still, again and again while they do.

    Looks are counted, not time, so that nobody is blamed for what stopped the agent as well.

    Args:
        say: sends a message to the coordinator, if there is one.
    """

    def __init__(self, workers: Workers, say: Callable[..., None]) -> None:
        self._workers, self._say = workers, say
        self._seen: dict[str, int] = {}

    async def keep(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Look once."""
        stopped = [name for name, pid in self._workers.pids.items() if is_stopped(pid)]
        self._seen = {name: self._seen.get(name, 0) + 1 for name in stopped}
        for name, looks in self._seen.items():
            if looks >= LOOKS:
                self._say("stopped", worker=name)

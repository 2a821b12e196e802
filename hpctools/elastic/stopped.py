"""What an agent sees of its workers' processes before the coordinator misses them.

One that is stopped (SIGSTOP) need not be waited for. One that is silent and computes is alive: something in
it holds Python's lock, which the thread that gives its signs of life needs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from hpctools.elastic.proc_stat import Stat, stat_of

LOOK_SECONDS = 0.2
LOOKS = 4  # in a row: a job that is suspended as a whole, its agent too, stops and wakes in pieces
SHARE = 0.1  # of a processor: who waits in a library for others has threads that run now and then
LEAST_SECONDS = 0.02  # two of the kernel's ticks


class Workers(Protocol):
    """Those of a node."""

    @property
    def pids(self) -> Mapping[str, int]:
        """The process of each worker that runs, by the worker's name."""
        ...


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped (state T of proc(5)); one that a debugger holds (state t) is not."""
    stat = stat_of(pid)
    return stat is not None and stat.is_stopped


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


class BusyWatch:
    """Knows which workers compute.

    Args:
        clock: seconds, never going back.
        stat: how a process is looked at.
    """

    def __init__(
        self,
        workers: Workers,
        clock: Callable[[], float] = time.monotonic,
        stat: Callable[[int], Stat | None] = stat_of,
    ) -> None:
        self._workers, self._clock, self._stat = workers, clock, stat
        self._before: dict[str, float] = {}
        self._last = clock()

    def look(self) -> list[str]:
        """Names of those that have computed for a tenth of the time since the last look and still run."""
        now = self._clock()
        least, self._last = max(LEAST_SECONDS, SHARE * (now - self._last)), now
        stats = {name: self._stat(pid) for name, pid in self._workers.pids.items()}
        before, self._before = self._before, {name: each.cpu_s for name, each in stats.items() if each}
        return [
            name
            for name, each in stats.items()
            if each and not each.is_stopped and each.cpu_s - before.get(name, each.cpu_s) >= least
        ]

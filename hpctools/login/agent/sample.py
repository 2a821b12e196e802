"""One look at a node: its processes, sessions and load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpctools.login.agent.load import Counters, Load, load, read_counters
from hpctools.login.agent.processes import PROC, Process, boot_time, read_processes
from hpctools.login.agent.sessions import OpenSession, open_sessions


@dataclass(frozen=True)
class Sample:
    """What a look has found.

    Attributes:
        at: when, seconds of a clock that never goes back.
        now: when, Unix seconds.
        boot: when the node was started, Unix seconds.
        load: since the look before.
    """

    at: float
    now: float
    boot: float
    processes: tuple[Process, ...]
    sessions: tuple[OpenSession, ...]
    load: Load
    counters: Counters = field(repr=False)


class Sampler:
    """Looks at a node.

    Args:
        monotonic: seconds, never going back.
        clock: Unix seconds.
        sources: where sessions came from (`hpctools.login.agent.sources`).
        proc: where the kernel's process files are.
    """

    def __init__(
        self,
        monotonic: Callable[[], float],
        clock: Callable[[], float],
        sources: Callable[[], Mapping[str, str]],
        proc: Path = PROC,
    ) -> None:
        self._monotonic, self._clock = monotonic, clock
        self._sources, self._proc = sources, proc
        self._counters: Counters | None = None
        self._known: dict[str, str] = {}

    def look(self) -> Sample:
        """Look now.

        Raises:
            OSError, ValueError: /proc is not there.
        """
        at, now = self._monotonic(), self._clock()
        processes = read_processes(self._proc)
        boot = boot_time(self._proc)
        sessions = open_sessions(processes, boot, self._known)
        if any(session.key not in self._known for session in sessions):
            # Somebody is new: only then are those asked who know where people came from.
            sessions = open_sessions(processes, boot, {**self._sources(), **self._known})
        self._known = {session.key: session.source for session in sessions}
        counters = read_counters(self._proc)
        busy = load(self._counters or counters, counters)
        self._counters = counters
        return Sample(at, now, boot, processes, sessions, busy, counters)

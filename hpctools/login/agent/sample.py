"""One look at a node: its processes, sessions and load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpctools.login.agent.load import Counters, Load, eased, last_minute, load, read_counters
from hpctools.login.agent.processes import PROC, Process, boot_time, read_processes
from hpctools.login.agent.sessions import OpenSession, open_sessions


@dataclass(frozen=True)
class Sample:
    """What a look has found.

    Attributes:
        at: when, seconds of a clock that never goes back.
        now: when, Unix seconds.
        boot: when the node was started, Unix seconds.
        load: now, its CPUs as a moving average of the last minute.
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
        self._last: Sample | None = None
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
        self._last = Sample(at, now, boot, processes, sessions, self._load(at, counters), counters)
        return self._last

    def _load(self, at: float, counters: Counters) -> Load:
        """The first look has counted nothing yet: the kernel knows how the last minute was."""
        if self._last is None:
            return last_minute(counters, self._proc)
        return eased(self._last.load, load(self._last.counters, counters), at - self._last.at)

"""What each person uses of a node, from its processes at two moments. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from hpctools.login.agent.processes import TICKS, Process

FIRST_PERSON = 1000
"""Accounts with smaller numbers are the system's."""
MACHINES = range(61_184, 65_536)
"""Accounts that systemd makes for services, and nobody."""


@dataclass(frozen=True)
class Usage:
    """One person's use.

    Attributes:
        cpus: processors, on average between the two moments.
        memory: resident bytes at the second one.
        most: the program that used the most processors, with its pid; empty when none did.
    """

    cpus: float
    memory: int
    most: str = ""


def usage(
    before: Iterable[Process], after: Iterable[Process], seconds: float, ignored: Collection[str] = ()
) -> Mapping[int, Usage]:
    """Use by uid, of people.

    A child that has ended is in its parent's ticks with all that it ever used: what was counted while it
    lived is taken off again.

    Args:
        before, after: all processes at both moments.
        seconds: between them.
        ignored: names of programs that do not count.
    """
    then = {process.key: process for process in before}
    now = {process.key: process for process in after}
    living = {process.pid: process for process in now.values()}
    ticks: dict[int, float] = {}
    grown: dict[int, list[tuple[int, Process]]] = {}
    for process in now.values():
        if _counts(process, ignored):
            used = process.cpu_ticks - (then[process.key].cpu_ticks if process.key in then else 0)
            ticks[process.uid] = ticks.get(process.uid, 0) + used
            grown.setdefault(process.uid, []).append((used, process))
    for process in then.values():
        parent = living.get(process.parent)
        inherited = parent is not None and parent.uid == process.uid and _counts(parent, ignored)
        if process.key not in now and inherited:
            ticks[process.uid] = ticks.get(process.uid, 0) - process.cpu_ticks
    return {
        uid: Usage(max(0.0, ticks[uid]) / TICKS / seconds, _memory(each), _most(each))
        for uid, each in grown.items()
    }


def _counts(process: Process, ignored: Collection[str]) -> bool:
    person = process.uid >= FIRST_PERSON and process.uid not in MACHINES
    return person and process.name not in ignored


def _memory(grown: Iterable[tuple[int, Process]]) -> int:
    return sum(process.memory for _, process in grown)


def _most(grown: Iterable[tuple[int, Process]]) -> str:
    used, process = max(grown, key=lambda pair: (pair[0], -pair[1].pid))
    return f"{process.name} (process {process.pid})" if used > 0 else ""

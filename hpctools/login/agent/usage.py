"""What each person uses of a node, from its processes at two moments. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
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

    A child that has ended is in its parent's ticks with all that it ever used, and so are those below it that
    ended before it: what was counted while they lived is taken off again. What processes above an ignored
    program have inherited does not count at all: a make has it of compilers, most of which no look has seen.

    Args:
        before, after: all processes at both moments.
        seconds: between them.
        ignored: names of programs that do not count.
    """
    then = {process.key: process for process in before}
    now = {process.key: process for process in after}
    counted = _counted_before(then, now)
    excused = _above_ignored(then.values(), ignored) | _above_ignored(now.values(), ignored)
    ticks: dict[int, float] = {}
    grown: dict[int, list[tuple[float, Process]]] = {}
    for process in now.values():
        if _counts(process, ignored):
            known = math.inf if process.key in excused else counted.get(process.key, 0)
            used = _used(process, then.get(process.key), known)
            ticks[process.uid] = ticks.get(process.uid, 0) + used
            grown.setdefault(process.uid, []).append((used, process))
    return {
        uid: Usage(max(0, ticks[uid]) / TICKS / seconds, _memory(each), _most(each))
        for uid, each in grown.items()
    }


def _used(process: Process, before: Process | None, known: float) -> float:
    """Ticks since then.

    Args:
        known: so many of those that it has inherited do not count, or did while they were its children's.
    """
    inherited = process.inherited_ticks - (before.inherited_ticks if before else 0)
    used = process.cpu_ticks - (before.cpu_ticks if before else 0)
    return used - inherited + max(0, inherited - known)


def _counted_before(then: Mapping[str, Process], now: Mapping[str, Process]) -> Mapping[str, int]:
    """Ticks that processes had then which are no more, by the nearest above them that is still there."""
    by_pid = {process.pid: process for process in then.values()}
    found: dict[str, int] = {}
    heirs: dict[int, str] = {}
    for process in then.values():
        if process.key not in now and (heir := _heir(process, by_pid, now, heirs)):
            found[heir] = found.get(heir, 0) + process.cpu_ticks
    return found


def _heir(
    process: Process, by_pid: Mapping[int, Process], now: Mapping[str, Process], heirs: dict[int, str]
) -> str:
    """The key of the nearest above a process that is still there; empty where none is.

    Args:
        heirs: by pid, of those that were looked at before; kept up, so that nothing is climbed twice.
    """
    passed, heir = [process.pid], ""
    for each in _above(process, by_pid):
        heir = each.key if each.key in now else heirs.get(each.pid, "")
        if each.key in now or each.pid in heirs:
            break
        passed.append(each.pid)
    heirs.update(dict.fromkeys(passed, heir))
    return heir


def _above_ignored(processes: Iterable[Process], ignored: Collection[str]) -> set[str]:
    """Those that inherit from programs that do not count."""
    by_pid = {process.pid: process for process in processes}
    found: set[str] = set()
    for process in (each for each in by_pid.values() if each.name in ignored):
        for each in _above(process, by_pid):
            if each.key in found:
                break  # and so are all above it
            found.add(each.key)
    return found


def _above(process: Process, by_pid: Mapping[int, Process]) -> Iterator[Process]:
    """Its parent, its parent's parent, and so on."""
    seen = {process.pid}
    while (parent := by_pid.get(process.parent)) is not None and parent.pid not in seen:
        seen.add(parent.pid)
        yield parent
        process = parent


def is_person(uid: int) -> bool:
    """Whether this is a person's number."""
    return uid >= FIRST_PERSON and uid not in MACHINES


def _counts(process: Process, ignored: Collection[str]) -> bool:
    return is_person(process.uid) and process.name not in ignored


def _memory(grown: Iterable[tuple[float, Process]]) -> int:
    return sum(process.memory for _, process in grown)


def _most(grown: Iterable[tuple[float, Process]]) -> str:
    used, process = max(grown, key=lambda pair: (pair[0], -pair[1].pid))
    return f"{process.name} (process {process.pid})" if used > 0 else ""

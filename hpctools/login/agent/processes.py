"""The processes of a node, out of /proc: whose they are, what they use, who started whom."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hpctools.errors import HpctoolsError

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
_LONGEST_TITLE = 8192
"""Bytes of a command line: anybody's may have megabytes, and a look has those of all processes."""


@dataclass(frozen=True)
class Process:
    """One process at one moment.

    Attributes:
        parent: its parent's pid.
        uid: whose it is (its real uid).
        started: clock ticks from boot to its start; with its pid it names the process for ever.
        cpu_ticks: clock ticks that it and its children that have ended have run.
        memory: resident bytes.
        name: the program's name, at most 15 characters; a process can change it.
        title: the beginning of its command line, or what it made of it (sshd tells there whom it serves).
        terminal: the one that controls it, such as `pts/3`; empty for none and for those that are no pts.
        inherited_ticks: those of `cpu_ticks` that its children had run when they ended, and theirs before.
    """

    pid: int
    parent: int
    uid: int
    started: int
    cpu_ticks: int
    memory: int
    name: str
    title: str
    terminal: str = ""
    inherited_ticks: int = 0

    @property
    def key(self) -> str:
        """PID-START, which no other process ever has until the next boot."""
        return f"{self.pid}-{self.started}"


def read_processes(proc: Path = PROC) -> tuple[Process, ...]:
    """All processes that are there; those that end meanwhile are left out.

    Args:
        proc: where the kernel's process files are.
    """
    found = (read_process(int(name), proc) for name in os.listdir(proc) if name.isdigit())  # noqa: PTH208
    return tuple(process for process in found if process is not None)


def check_seen(proc: Path = PROC) -> None:
    """Make sure that processes of others are seen, as they are not under `hidepid` (proc(5)).

    Raises:
        HpctoolsError: they are not: nobody would be counted, told or cared for, without a word.
    """
    try:
        (proc / "1" / "stat").read_text()
    except OSError as error:
        raise HpctoolsError(
            f"the agent does not see the processes of others ({error}): {proc} is mounted with hidepid",
            "put SupplementaryGroups=GROUP into its unit, GROUP being the mount's gid= (docs/login.md)",
        ) from None


def read_process(pid: int, proc: Path = PROC) -> Process | None:
    """The process that has this number now; None when there is none.

    Args:
        pid: the number.
        proc: where the kernel's process files are.
    """
    folder = proc / str(pid)
    try:
        stat = (folder / "stat").read_text(errors="replace")
        uid = (folder / "status").read_text(errors="replace").partition("\nUid:")[2].split(maxsplit=1)[0]
        return parse(stat, int(uid), _title(folder))
    except (OSError, IndexError, ValueError):
        return None


def _title(folder: Path) -> str:
    with (folder / "cmdline").open("rb", buffering=0) as file:
        return file.read(_LONGEST_TITLE).replace(b"\0", b" ").decode(errors="replace").strip()


def parse(stat: str, uid: int, title: str) -> Process:
    """A process from /proc/PID/stat, whose second field may hold blanks and brackets.

    Raises:
        ValueError: it is no such text.
    """
    head, closing, rest = stat.rpartition(")")
    pid, opening, name = head.partition(" (")
    words = rest.split()
    if not (closing and opening and len(words) >= 22):
        raise ValueError(f"no line of /proc/PID/stat: {stat[:60]!r}")
    # From proc(5)'s third field on: 1 ppid, 4 tty_nr, 11-14 utime stime cutime cstime, 19 starttime, 21 rss.
    ticks, inherited = (sum(int(word) for word in words[first:15]) for first in (11, 13))
    memory, terminal, start = int(words[21]) * PAGE, terminal_of(int(words[4])), int(words[19])
    return Process(int(pid), int(words[1]), uid, start, ticks, memory, name, title, terminal, inherited)


def terminal_of(number: int) -> str:
    """A pseudo-terminal by /proc/PID/stat's tty_nr; empty for others.

    proc(5): the minor number is in bits 31 to 20 and 7 to 0, the major one in 15 to 8; pts have the majors
    136 to 143 (the kernel's Documentation/admin-guide/devices.txt).

    >>> terminal_of(34819), terminal_of(0), terminal_of(1025)
    ('pts/3', '', '')
    """
    major, minor = number >> 8 & 0xFF, number & 0xFF | number >> 12 & 0xFFF00
    return f"pts/{(major - 136) * 256 + minor}" if 136 <= major <= 143 else ""


def started_at(process: Process, boot: float) -> int:
    """When a process began, Unix seconds, given when the machine did."""
    return int(boot + process.started / TICKS)


def boot_time(proc: Path = PROC) -> float:
    """When the machine was started, Unix seconds, as the kernel counts it now."""
    for line in (proc / "stat").read_text().splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0


def children(processes: Iterable[Process]) -> Mapping[int, tuple[Process, ...]]:
    """Processes by their parent's pid."""
    found: dict[int, list[Process]] = {}
    for process in processes:
        found.setdefault(process.parent, []).append(process)
    return {parent: tuple(each) for parent, each in found.items()}


def below(pid: int, by_parent: Mapping[int, tuple[Process, ...]]) -> Iterator[Process]:
    """All that a process started and that still belongs to it, nearest first."""
    waiting, seen = deque([pid]), {pid}
    while waiting:
        for child in by_parent.get(waiting.popleft(), ()):
            if child.pid not in seen:
                seen.add(child.pid)
                waiting.append(child.pid)
                yield child

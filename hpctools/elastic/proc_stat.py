"""What the kernel tells of a process: whether it is stopped or hangs, and how long it has computed."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
STATE, USER, SYSTEM = 0, 11, 12  # fields 3, 14 and 15 of proc(5), counted from behind the name


@dataclass(frozen=True)
class Stat:
    """A process at a moment.

    Attributes:
        state: a letter, as in proc(5).
        cpu_s: seconds for which its threads have run, in itself and in the kernel; not its children's.
    """

    state: str
    cpu_s: float

    @property
    def is_stopped(self) -> bool:
        """Whether somebody has stopped it (SIGSTOP); one that a debugger holds (state t) is not."""
        return self.state == "T"


def stat_of(pid: int) -> Stat | None:
    """A process's line of /proc; None when there is no such process."""
    return _stat(Path(f"/proc/{pid}/stat"))


def waits_in_kernel(pid: int) -> bool:
    """Whether a thread of a process waits for something that no signal ends (state D), a device say, now."""
    with contextlib.suppress(OSError):
        threads = [_stat(each / "stat") for each in Path(f"/proc/{pid}/task").iterdir()]
        return any(stat is not None and stat.state == "D" for stat in threads)
    return False


def _stat(path: Path) -> Stat | None:
    with contextlib.suppress(OSError, IndexError, ValueError):
        # Bytes: the name is whatever the process chose, cut after 15 of them.
        fields = path.read_bytes().rpartition(b")")[2].split()
        return Stat(fields[STATE].decode(), (int(fields[USER]) + int(fields[SYSTEM])) / TICKS)
    return None

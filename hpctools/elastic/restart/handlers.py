"""Which processes of a node's ranks have a handler of their own for SIGTERM.

The process that an agent starts may be a wrapper that forks and dies of SIGTERM at once (a shell script
without `exec`, `conda run`): the handler is then the script's, behind it.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from hpctools.elastic.left_behind import Process, own_processes

SIGTERM_BIT = 1 << (signal.SIGTERM - 1)


def handles_term(pid: int) -> bool:
    """Whether a process has a handler of its own for SIGTERM (proc(5), SigCgt)."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) & SIGTERM_BIT)
    return False


@dataclass
class Behind:
    """What a wrapper without a handler has started.

    Attributes:
        handling: processes that have a handler.
        groups: process groups of its session other than its own (`timeout`, a shell's `set -m`).
    """

    handling: list[Process] = field(default_factory=list)
    groups: set[int] = field(default_factory=set)


def behind_wrappers(leaders: Collection[int], *, looks: bool) -> dict[int, Behind]:
    """By leader without a handler, the others of its session.

    A leader with a handler decides for all: when it has ended, its script has. All are found in one look at
    /proc, or in none.

    Args:
        leaders: process ids; each is that of a session and a process group, too.
        looks: whether they may be wrappers. Else they are the scripts themselves: what these have started,
            such as a monitor with a handler of its own, gets no time where they have none.
    """
    found = {pid: Behind() for pid in leaders if not handles_term(pid)}
    for each in own_processes() if found and looks else ():
        if each.session in found and each.pid != each.session:
            found[each.session].groups |= {each.group} - {each.session}
            found[each.session].handling += [each] if handles_term(each.pid) else []
    return found

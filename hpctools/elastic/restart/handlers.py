"""Which processes of a node's ranks have a handler of their own for SIGTERM.

The process that an agent starts may be a wrapper that forks and dies of SIGTERM at once (a shell script
without `exec`, `conda run`): the handler is then the script's, behind it.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Collection
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


def handlers_behind(leaders: Collection[int]) -> dict[int, list[Process]]:
    """By leader without a handler, the others of its process group that have one.

    A leader with a handler decides for all: when it has ended, its script has. Processes that have left the
    group are sent no signal, so they are not asked. All are found in one look at /proc, or in none.

    Args:
        leaders: process ids; each is that of a process group, too.
    """
    wrappers = [pid for pid in leaders if not handles_term(pid)]
    found: dict[int, list[Process]] = {pid: [] for pid in wrappers}
    for each in own_processes() if wrappers else ():
        if each.group in found and each.pid != each.group and handles_term(each.pid):
            found[each.group].append(each)
    return found

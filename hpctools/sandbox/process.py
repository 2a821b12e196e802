"""Processes told apart by pid and start time, so that a recycled pid is never taken for ours."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Identity:
    """One process, for as long as this machine is up.

    Attributes:
        pid: its process id on the machine (outside the sandbox's own pid namespace).
        start: clock ticks after boot at which it started: field 22 of /proc/PID/stat (proc(5)).
        boot: the boot that the ticks count from: /proc/sys/kernel/random/boot_id.
    """

    pid: int
    start: int
    boot: str


def boot_id() -> str:
    """The identity of the machine's current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> Identity | None:
    """The identity of a living process; None when there is none, or only its remains (a zombie)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    state, start = fields[0], int(fields[19])
    return None if state in "ZX" else Identity(pid, start, boot_id())


def alive(identity: Identity) -> bool:
    """Whether that very process still runs."""
    return identify(identity.pid) == identity


def started_at(identity: Identity) -> float:
    """When it started, in Unix seconds."""
    ticks = os.sysconf("SC_CLK_TCK")
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - uptime + identity.start / ticks


def send(identity: Identity, number: int = signal.SIGTERM) -> bool:
    """Send a signal to that very process; False when it has ended."""
    if not alive(identity):
        return False
    try:
        os.kill(identity.pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_gone(identity: Identity, timeout: float) -> bool:
    """Wait until it has ended; False when it still runs after `timeout` seconds."""
    try:
        handle = os.pidfd_open(identity.pid)
    except OSError:  # ENOENT, formerly EINVAL: its number is by now that of a thread of somebody else
        if alive(identity):
            raise
        return True
    try:
        import select

        if alive(identity):
            select.select([handle], [], [], timeout)
    finally:
        os.close(handle)
    return not alive(identity)

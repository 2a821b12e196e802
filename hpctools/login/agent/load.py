"""How busy a node is, in the kernel's figures."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

from hpctools.login.agent.processes import PROC

MEMORY_SECONDS = 60.0
"""How long CPUs that were busy are remembered: many logins at once keep a node busy for seconds, which is no
reason to send people elsewhere."""


@dataclass(frozen=True)
class Counters:
    """What the kernel has counted at one moment.

    Attributes:
        cpus: processors of the node.
        ticks, idle: clock ticks of all of them since boot, and those in which nothing ran.
        memory, available: bytes; what can be given without swapping.
    """

    cpus: int
    ticks: int
    idle: int
    memory: int
    available: int


@dataclass(frozen=True)
class Load:
    """How busy a node is.

    Attributes:
        cpus: processors.
        cpu, memory: the part that is in use, 0 to 1.
    """

    cpus: int
    cpu: float
    memory: float


def read_counters(proc: Path = PROC) -> Counters:
    """The counters now.

    Raises:
        OSError, ValueError: the kernel's files are not there, or not as they should be.
    """
    return parse_counters((proc / "stat").read_text(), (proc / "meminfo").read_text(), os.cpu_count() or 1)


def parse_counters(stat: str, meminfo: str, cpus: int) -> Counters:
    """Counters from /proc/stat and /proc/meminfo.

    Raises:
        ValueError: a figure is missing.
    """
    values = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    # user nice system idle iowait irq softirq steal; guests are in user already.
    ticks = [int(word) for word in stat.partition("\n")[0].split()[1:9]]
    try:
        memory, available = (int(values[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
        return Counters(cpus, sum(ticks), ticks[3] + ticks[4], memory, available)
    except (KeyError, IndexError):
        raise ValueError("/proc/stat or /proc/meminfo lacks a figure") from None


def load(before: Counters, after: Counters) -> Load:
    """How busy the node was between two moments; idle when there was no time between them."""
    passed = after.ticks - before.ticks
    busy = 1 - (after.idle - before.idle) / passed if passed > 0 else 0.0
    return Load(after.cpus, min(1.0, max(0.0, busy)), min(1.0, max(0.0, 1 - after.available / after.memory)))


def last_minute(counters: Counters, proc: Path = PROC) -> Load:
    """How busy the node was before anybody counted: the kernel's load of a minute, as part of the CPUs.

    It forgets as `eased` does (proc_loadavg(5), kernel/sched/loadavg.c), but counts processes that wait for
    storage, too: to begin with, no better figure is there.

    Raises:
        OSError, ValueError: the kernel's file is not there, or not as it should be.
    """
    running = float((proc / "loadavg").read_text().partition(" ")[0])
    return replace(load(counters, counters), cpu=min(1.0, running / counters.cpus))


def eased(before: Load, now: Load, seconds: float) -> Load:
    """The load with its CPUs' part as a moving average, in which a time weighs less the longer ago it was.

    Args:
        before: what this returned last; to begin with, that of the last minute.
        now: since then.
        seconds: how long that is.

    Returns:
        `now`, its `cpu` 1 - 1/e of the way to a new value after MEMORY_SECONDS of it.
    """
    part = -math.expm1(-seconds / MEMORY_SECONDS)
    return replace(now, cpu=before.cpu + (now.cpu - before.cpu) * part)

"""Processes of a made-up node."""

from __future__ import annotations

from hpctools.login.agent.load import Counters, Load
from hpctools.login.agent.processes import Process
from hpctools.login.agent.sample import Sample
from hpctools.login.agent.sessions import open_sessions

BOOT = 1_000_000.0


def process(
    pid: int, parent: int = 1, uid: int = 1000, title: str = "", *, ticks: int = 0, started: int = 0,
    memory: int = 0, name: str = "python3", terminal: str = "", inherited: int = 0,
) -> Process:  # fmt: skip
    return Process(pid, parent, uid, started or pid * 100, ticks, memory, name, title, terminal, inherited)


LISTENER = process(10, 1, 0, "sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups", name="sshd")


def connection(pid: int, user: str, uid: int, tty: str = "notty", ticks: int = 0) -> tuple[Process, ...]:
    """sshd's two processes for a connection of OpenSSH 9.2, and a shell in it."""
    return (
        process(pid, 10, 0, f"sshd: {user} [priv]", name="sshd"),
        process(pid + 1, pid, uid, f"sshd: {user}@{tty}", name="sshd"),
        process(pid + 2, pid + 1, uid, "-bash", name="bash", ticks=ticks),
    )


def sample(*processes: Process, at: float = 0.0, now: float = 2_000_000.0) -> Sample:
    return Sample(
        at, now, BOOT, processes, open_sessions(processes, BOOT), Load(4, 0.25, 0.5), Counters(4, 0, 0, 1, 1)
    )

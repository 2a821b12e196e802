"""`status`: what runs, where, since when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpctools.errors import HpctoolsError
from hpctools.sandbox import process
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.record import Record

SINFO_SECONDS = 10.0


@dataclass(frozen=True)
class DaemonStatus:
    """One daemon as it is now.

    Attributes:
        state: `running`, or `ended` when its process is gone.
        since: Unix seconds at which it started; None when it has ended.
        port: TCP port on 127.0.0.1; None when it has none.
    """

    name: str
    host: str
    state: str
    pid: int
    since: float | None
    port: int | None
    log: Path


@dataclass(frozen=True)
class Status:
    """A sandbox as it is now.

    Attributes:
        state: `down` (none), `running` (all of it), `damaged` (something has ended; `up` heals).
        nodes: compute nodes and their Slurm states, where slurmctld answers.
    """

    state: str
    root: Path
    daemons: tuple[DaemonStatus, ...] = ()
    nodes: tuple[tuple[str, str], ...] = ()
    people: tuple[str, ...] = ()
    api: str = ""
    ssh: tuple[str, ...] = ()


def status(sandbox: Sandbox) -> Status:
    """Look at a sandbox; never changes anything."""
    root = sandbox.layout.root
    found = sandbox.record()
    if found is None:
        return Status("down", root)
    if found.holder is None or not process.alive(found.holder):
        return Status("damaged", root)
    drawn = sandbox.blueprint()
    wanted = drawn.daemons(found.ports)
    daemons = tuple(_daemon(sandbox, found, d.name, d.host, d.port) for d in wanted)
    whole = all(d.state == "running" for d in daemons)
    people = tuple(p.name for p in drawn.persons if p.shell == "/bin/bash")
    ssh = tuple(
        f"ssh -i {sandbox.layout.key} -p {found.ports[f'sshd-{host}']} USER@127.0.0.1"
        for host in drawn.login_hosts
    )
    api = f"http://127.0.0.1:{found.ports['api']}/"
    return Status(
        "running" if whole else "damaged", root, daemons, _nodes(sandbox, daemons), people, api, ssh
    )


def _daemon(sandbox: Sandbox, found: Record, name: str, host: str, port: str) -> DaemonStatus:
    identity = found.processes.get(name)
    lives = identity is not None and process.alive(identity)
    return DaemonStatus(
        name=name,
        host=host,
        state="running" if lives else "ended",
        pid=identity.pid if identity else 0,
        since=process.started_at(identity) if identity and lives else None,
        port=found.ports.get(port) if port else None,
        log=sandbox.layout.logs / f"{name}.log",
    )


def _nodes(sandbox: Sandbox, daemons: Sequence[DaemonStatus]) -> tuple[tuple[str, str], ...]:
    """Ask the controller, unless it is known not to answer: sinfo would try for half a minute."""
    if any(d.state != "running" for d in daemons if d.name in ("munged", "slurmctld")):
        return ()
    try:
        seen = sandbox.inside("sinfo", "-hN", "-o", "%N %T", timeout=SINFO_SECONDS)
    except HpctoolsError:
        return ()
    pairs = (line.split() for line in seen.stdout.splitlines())
    return tuple(dict.fromkeys((name, state) for name, state in pairs))

"""`sandbox-restart`: ends daemons and starts them again, from inside, as systemd does on a real cluster.

Usage, inside: sandbox-restart slurmctld | slurmdbd | --nodes HOSTLIST

What is started here has a pid that only the inside knows. A note beside its log tells it, and `follow` finds
the process that the machine sees.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hpctools.errors import HpctoolsError, SandboxError
from hpctools.sandbox.daemons import Daemon
from hpctools.sandbox.layout import Layout
from hpctools.sandbox.process import Identity, alive, identify
from hpctools.sandbox.record import Record
from hpctools.slurm import run
from hpctools.slurm.parse import unfold

PROGRAM = "sandbox-restart"
_END_SECONDS = 20.0
_HOST_SCRIPT = 'hostname "$1" && shift && exec "$@"'


def main() -> int:
    """Entry; see the module."""
    root, *words = sys.argv[1:]
    layout = Layout(Path(root))
    try:
        if b"hpctools.sandbox.holder" not in Path("/proc/1/cmdline").read_bytes():
            raise SandboxError("this is no sandbox's inside", "hpctools sandbox exec -- sandbox-restart ...")
        for name in _names(words):
            _restart(layout, name)
    except (HpctoolsError, OSError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    return 0


def describe(layout: Layout, daemons: Sequence[Daemon]) -> None:
    """Write down how each daemon is started, and the program that reads it."""
    rows = {daemon.name: {"host": daemon.host, "argv": daemon.argv} for daemon in daemons}
    _describing(layout).write_text(json.dumps(rows))
    program = layout.tree / "usr" / "local" / "bin" / PROGRAM
    code = Path(__file__).resolve().parents[2]
    module = f"{sys.executable} -m hpctools.sandbox.restart {layout.root}"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={code} exec {module} "$@"\n')
    program.chmod(0o755)


def follow(layout: Layout, record: Record) -> Record:
    """The record with the processes of daemons that were restarted from inside."""
    late = [
        name for name, known in record.processes.items() if not alive(known) and _note(layout, name).exists()
    ]
    if not late or record.holder is None or not alive(record.holder):
        return record
    seen = _inside(record.holder)
    found = {name: seen[pid] for name in late if (pid := _noted(layout, name)) in seen}
    return replace(record, processes={**record.processes, **found})


def forget(layout: Layout) -> None:
    """Forget who was restarted from inside: in other namespaces these pids are somebody else's."""
    for note in layout.logs.glob("*.inside"):
        note.unlink()


def _names(words: Sequence[str]) -> list[str]:
    if len(words) == 2 and words[0] == "--nodes":
        return [f"slurmd-{node}" for node in unfold(words[1])]
    if not words or words[0].startswith("-"):
        raise SandboxError(f"what is to be restarted? {PROGRAM} slurmctld | slurmdbd | --nodes HOSTLIST")
    return list(words)


def _restart(layout: Layout, name: str) -> None:
    rows = json.loads(_describing(layout).read_text())
    if name not in rows:
        raise SandboxError(f"no daemon {name!r}", f"there are: {', '.join(rows)}")
    argv = tuple(rows[name]["argv"])
    for pid in _running(argv):
        _end(pid)
    log = layout.logs / f"{name}.log"
    with log.open("ab") as stream:
        shell = ("unshare", "--uts", "--", "sh", "-c", _HOST_SCRIPT, "start", rows[name]["host"])
        started = run.start([*shell, *argv], stdout=stream, stderr=stream, cwd=Path("/"), new_session=True)
    _note(layout, name).write_text(str(started.pid))


def _running(argv: Sequence[str]) -> list[int]:
    wanted = b"\0".join(word.encode() for word in argv) + b"\0"
    return [
        int(path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdecimal() and _command(path) == wanted
    ]


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def _end(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except (ProcessLookupError, FileNotFoundError):  # gone, or its number is by now a thread's
        return
    try:
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        if not select.select([handle], [], [], _END_SECONDS)[0]:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            select.select([handle], [], [], _END_SECONDS)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def _describing(layout: Layout) -> Path:
    return layout.root / "daemons.json"


def _note(layout: Layout, name: str) -> Path:
    return layout.logs / f"{name}.inside"


def _noted(layout: Layout, name: str) -> int:
    try:
        return int(_note(layout, name).read_text())
    except (OSError, ValueError):
        return 0


def _inside(holder: Identity) -> Mapping[int, Identity]:
    """The processes of a sandbox by the pid that they have inside."""
    try:
        space = Path(f"/proc/{holder.pid}/ns/pid").readlink()
    except OSError:
        return {}
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            pid, identity = _inner_pid(path, space), identify(int(path.name))
            if pid and identity:
                found[pid] = identity
    return found


def _inner_pid(process: Path, space: Path) -> int:
    """The pid that a process has in a pid namespace; 0 when it is not of that namespace."""
    try:
        if (process / "ns/pid").readlink() != space:
            return 0
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[-1]) for line in lines if line.startswith("NSpid:")), 0)


if __name__ == "__main__":
    sys.exit(main())

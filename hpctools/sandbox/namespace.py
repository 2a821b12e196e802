"""The sandbox's namespaces: made by `unshare`, kept by the holder, entered by `nsenter`."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpctools.errors import SandboxError
from hpctools.sandbox.layout import Layout
from hpctools.sandbox.process import Identity, identify, send, started_at, wait_gone
from hpctools.slurm import run

UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--ipc", "--uts", "--kill-child", "--propagation=private")
HOLDER_SECONDS = 10.0
START_SECONDS = 10.0
# Inside a shell that itself stays in the machine's pid namespace, so `$!` is the pid that the machine sees;
# its child is the first to live inside. All values travel as arguments, none as shell text.
START_SCRIPT = (
    'hostname "$1" && log=$2 pid=$3 && shift 3 && '
    '{ setsid "$@" </dev/null >>"$log" 2>&1 & echo $! >"$pid"; cat "$pid"; }'
)
HOLD_SCRIPT = 'echo $$ >"$1" && shift && exec "$@"'
HOLDER_NOTE = "holder.pid"
# What we run inside must not act on when we are killed: the next `up` begins at once.
DIE_WITH_US = ("setpriv", "--pdeathsig=KILL")
SAME_SECONDS = 2.0
_CLONE_NEWPID = 0x20000000
# Changes that are applied inside are remembered there; the machine's own /var/lib/hpctools is not ours.
STATE_INSIDE = "/var/spool/hpctools"


def create(
    layout: Layout,
    sandbox_id: str,
    cgroup: str,
    accounts: Mapping[str, tuple[int, int]],
    release: Path = Path("/"),
) -> Identity:
    """Make the namespaces and their holder; return the holder once the inside's view is ready.

    Args:
        layout: the state folder.
        sandbox_id: the name of its cgroup branch.
        cgroup: `v1` or `none`.
        accounts: uid and gid of the service accounts, by name.
        release: the root folder that the inside has; `/` is the machine's own.

    Raises:
        SandboxError: the machine does not let us; the message has the holder's last words.
    """
    texts = {"root": str(layout.root), "release": str(release), "id": sandbox_id, "cgroup": cgroup}
    order = {**texts, "accounts": dict(accounts)}
    log = layout.logs / "holder.log"
    argv = [
        "sh",
        "-c",
        HOLD_SCRIPT,
        "hold",
        str(layout.logs / HOLDER_NOTE),
        *UNSHARE,
        sys.executable,
        "-m",
        "hpctools.sandbox.holder",
        json.dumps(order),
    ]
    process, ready = begin(argv, log, HOLDER_SECONDS, _environment())
    holder = _only_child(process.pid) if ready else None
    if holder is None:
        process.kill()
        process.wait()
        raise SandboxError(f"the sandbox's namespaces could not be made: {last_line(log)}", f"see {log}")
    process.returncode = 0  # it lives on without us; `down` ends it through its child
    return holder


def begin(argv: Sequence[str], log: Path, seconds: float, env: Mapping[str, str]) -> tuple[run.Process, bool]:
    """Start what makes namespaces, in a session of its own.

    Args:
        argv: the command; what lives inside writes `!` to its standard output once it is ready.
        log: what it says otherwise is added here.
        seconds: how long it may take.
        env: its whole environment.

    Returns:
        The process, and whether its inside is ready.
    """
    reader, writer = os.pipe()
    with log.open("ab") as errors:
        process = run.start(argv, stdout=writer, stderr=errors, env=env, cwd=Path("/"), new_session=True)
    os.close(writer)
    ready = bool(select.select([reader], [], [], seconds)[0]) and os.read(reader, 1) == b"!"
    os.close(reader)
    return process, ready


def start(holder: Identity, hostname: str, argv: Sequence[str], log: Path) -> Identity:
    """Start a daemon inside under its own host name; it lives on when we end.

    Raises:
        SandboxError: it ended at once.
    """
    shell = ["sh", "-c", START_SCRIPT, "start", hostname, str(log), str(log.with_suffix(".pid")), *argv]
    enter = [*_nsenter(holder), "--pid", "--no-fork", "--", "unshare"]
    done = run.run([*enter, "--uts", "--", *shell], timeout=START_SECONDS, env=_environment(), cwd=Path("/"))
    started = identify(int(done.stdout))
    if started is None:
        raise SandboxError(f"{argv[0]} ended as soon as it was started: {last_line(log)}", f"see {log}")
    return started


def found(holder: Identity, log: Path) -> Identity | None:
    """The daemon that was last started with this log and still runs inside; None when there is none.

    An `up` that was killed between starting a daemon and writing it down leaves one that only its pid file
    tells of.
    """
    identity = _noted(log.with_suffix(".pid"))
    try:
        return identity if identity and of(identity) == of(holder) else None
    except OSError:
        return None


def of(member: Identity) -> str:
    """The pid namespace that a process is in, as `pid:[4026532201]`.

    Raises:
        OSError: it has ended.
    """
    return str(Path(f"/proc/{member.pid}/ns/pid").readlink())


def end_forgotten(layout: Layout) -> None:
    """End namespaces that an `up` made and was killed before it could write their holder down."""
    identity = _noted(layout.logs / HOLDER_NOTE)
    if identity and send(identity, signal.SIGKILL):  # takes its child, the holder, along (--kill-child)
        wait_gone(identity, HOLDER_SECONDS)


def _noted(note: Path) -> Identity | None:
    """The process that a pid file tells of, if it is the one that was started when the file was written."""
    try:
        identity = identify(int(note.read_text()))
        same = identity and abs(started_at(identity) - note.stat().st_mtime) <= SAME_SECONDS
    except (OSError, ValueError):
        return None
    return identity if same else None


def have_children_in(member: Identity) -> None:
    """Have what this process starts from now on live in a member's pid namespace, as children of ours.

    nsenter would stand between us and them: Ctrl-C ends it, and it hides which signal ended its child.

    Raises:
        SandboxError: the kernel refuses.
    """
    with Path(f"/proc/{member.pid}/ns/pid").open("rb") as space:
        if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), _CLONE_NEWPID) != 0:
            why = os.strerror(ctypes.get_errno())
            raise SandboxError(f"the sandbox cannot be entered: {why}", "only root may")


def entering(
    member: Identity, argv: Sequence[str], user: str, home: str, *, is_there: bool = False
) -> list[str]:
    """The command line that runs `argv` inside as `user`, on the host of the process `member`.

    The environment is what a login gives: nothing of ours but the terminal's and the locale's.

    Args:
        is_there: whoever starts it has its children in the pid namespace already.
    """
    enter = [*_nsenter(member), *(() if is_there else ("--pid",)), "--uts", "--"]
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    kept = [
        f"{name}={os.environ[name]}" for name in ("TERM", "LANG", "NO_COLOR", "COLUMNS") if name in os.environ
    ]
    fresh = [f"HOME={home}", f"USER={user}", f"LOGNAME={user}", "SHELL=/bin/bash", f"PATH={path}"]
    fresh.append(f"HPCTOOLS_STATE={STATE_INSIDE}")
    identity = [*DIE_WITH_US, f"--reuid={user}", f"--regid={user}", "--init-groups", "--"]
    return [
        *DIE_WITH_US,
        "--",
        *enter,
        "env",
        "-i",
        *fresh,
        *kept,
        *identity,
        "env",
        f"--chdir={'/' if user == 'root' else home}",
        *argv,
    ]


def _nsenter(member: Identity) -> list[str]:
    """Into the member's namespaces but of pids and the host name; `--mount` alone leaves a chroot."""
    return ["nsenter", f"--target={member.pid}", "--mount", "--root", "--ipc", "--cgroup"]


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": str(_code())}


def _code() -> Path:
    return Path(__file__).resolve().parents[2]


def _only_child(pid: int) -> Identity | None:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return identify(int(children[0])) if children else None


def last_line(log: Path) -> str:
    """The last thing that a daemon wrote to its log."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it printed nothing"

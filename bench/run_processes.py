"""The processes of a bench's run, found by their words and environments (proc(5)), and signals to them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpctools.elastic.forking.client import SERVER
from hpctools.elastic.left_behind import STARTED_BY


@dataclass(frozen=True)
class Proc:
    """A process of the run.

    Attributes:
        kind: `agent` or `worker`.
        node: where it runs.
        baseline: whether it belongs to the first baseline job.
    """

    pid: int
    kind: str
    node: str
    baseline: bool


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal; one that has ended is no error."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def processes(belongs: Callable[[int], bool], run_dir: str) -> Iterator[Proc]:
    """Agents and workers of the run with this folder, of the processes that `belongs` is true of."""
    for pid in _pids():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            environ = _environ(pid)
            # srun and the bash that starts a killed agent again have the same words.
            agent = {"--run-dir", run_dir} <= set(words) and Path(words[0]).name.startswith("python")
            of_run = environ.get("HPCTOOLS_RUN_DIR") == run_dir
            worker = of_run and ("HPCTOOLS_WORKER" in environ or _is_forked(pid))
            if not (agent or worker) or not belongs(pid):
                continue
        except OSError:
            continue
        # By whom it was started, which begins as a worker's name: a forked one has its server's environment.
        baseline = environ.get(STARTED_BY, "").startswith("b") if worker else "baseline" in words
        yield Proc(pid, "worker" if worker else "agent", environ.get("SLURMD_NODENAME", ""), baseline)


def _is_forked(pid: int) -> bool:
    """Whether it is a worker that its node's fork server has forked."""
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return SERVER in Path(f"/proc/{parent}/cmdline").read_bytes().decode(errors="replace").split("\0")


def on_node(node: str, within: str) -> Iterator[int]:
    """Processes of jobs on a node: their environment names it; and their step daemons, which are parents."""
    for pid in _pids():
        try:
            if namespace(pid) == within and _environ(pid).get("SLURMD_NODENAME") == node:
                parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                if Path(f"/proc/{parent}/comm").read_text().startswith("slurmstepd"):
                    yield parent
                yield pid
        except OSError:
            continue


def namespace(pid: int) -> str:
    """The pid namespace of a process.

    Raises:
        OSError: it has ended.
    """
    return str(Path(f"/proc/{pid}/ns/pid").readlink())


def _pids() -> Sequence[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _environ(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return {name: value for name, _, value in (entry.partition("=") for entry in text.split("\0")) if name}


def listening(pid: int) -> set[int]:
    """TCP ports on which a process listens (proc(5))."""
    sockets = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(entry.readlink()))
        except OSError:
            continue
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                ports.add(int(words[1].rpartition(":")[2], 16))
    return ports

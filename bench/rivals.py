"""Other ways to resize a training, on this machine: torchrun and torchft, each with its best settings."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from bench.rigs import PROGRAMS
from hpctools.errors import CommandError
from hpctools.slurm import run

ROOT = Path(__file__).resolve().parent.parent
TORCHFT = ROOT / ".dev" / "torchft"
TORCHFT_VERSION = "0.2.0"
INSTALL_SECONDS = 600.0
END_SECONDS = 30.0
TORCHRUN_SETTINGS = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"
# Its defaults are 60 s and 5 s; shorter ones than these make it lose members that are only busy.
LIGHTHOUSE_SETTINGS = ("--join_timeout_ms=1000", "--heartbeat_timeout_ms=1000", "--quorum_tick_ms=50")


class Rival(Protocol):
    """A training that can be resized.

    Attributes:
        logs: folder of its step logs.
    """

    logs: Path

    def resize(self, workers: int) -> None:
        """Ask for so many workers; those that go are told so."""
        ...


class Torchrun:
    """torchrun --nnodes 1:N: an agent for each worker; the first one hosts the rendezvous."""

    def __init__(self, logs: Path, most: int, environ: dict[str, str]) -> None:
        self.logs = logs
        self._most = most
        self._environ = environ
        self._port = _free_port()
        self._agents: list[run.Process] = []

    def resize(self, workers: int) -> None:
        """Start agents, or end the youngest in an orderly way."""
        while len(self._agents) < workers:
            self._agents.append(self._start())
        for agent in self._agents[workers:]:
            agent.send_signal(signal.SIGTERM)
        del self._agents[workers:]

    def end(self) -> None:
        """End what is left, workers too."""
        _end(self._agents)

    def _start(self) -> run.Process:
        argv = [sys.executable, "-m", "torch.distributed.run", "--nnodes", f"1:{self._most}"]
        argv += ["--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "bench"]
        argv += ["--rdzv-endpoint", f"127.0.0.1:{self._port}", "--rdzv-conf", TORCHRUN_SETTINGS]
        argv += ["--max-restarts", "1000", "--monitor-interval", "0.1", "--local-addr", "127.0.0.1"]
        argv += ["--shutdown-timeout", "2", str(PROGRAMS / "torchrun.py"), str(self.logs)]
        # Without the second one torchrun hangs for good when somebody joins (2.13).
        own = {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **self._environ}
        with (self.logs / "torchrun.log").open("ab") as log:
            return run.start(argv, stdout=log, stderr=log, env={**os.environ, **own}, new_session=True)


class Torchft:
    """torchft: each worker a replica group of its own, a lighthouse beside them."""

    def __init__(self, logs: Path, environ: dict[str, str]) -> None:
        self.logs = logs
        self._environ = {**os.environ, "OMP_NUM_THREADS": "1", **environ}
        self._port = _free_port()
        self._workers: list[run.Process] = []
        self._started = 0
        program = [str(TORCHFT / "bin" / "torchft_lighthouse"), "--min_replicas=1", *LIGHTHOUSE_SETTINGS]
        self._lighthouse = self._run([*program, f"--bind=127.0.0.1:{self._port}"])

    def resize(self, workers: int) -> None:
        """Start workers, or tell the youngest to leave."""
        while len(self._workers) < workers:
            self._started += 1
            program = [str(TORCHFT / "bin" / "python"), str(PROGRAMS / "torchft_train.py"), str(self.logs)]
            place = [f"http://127.0.0.1:{self._port}", f"w{self._started:03}"]
            self._workers.append(self._run([*program, *place]))
        for worker in self._workers[workers:]:
            worker.send_signal(signal.SIGTERM)
        del self._workers[workers:]

    def end(self) -> None:
        """End what is left."""
        _end([*self._workers, self._lighthouse], signal.SIGKILL)

    def _run(self, argv: list[str]) -> run.Process:
        with (self.logs / "torchft.log").open("ab") as log:
            return run.start(argv, stdout=log, stderr=log, env=self._environ, new_session=True)


@contextmanager
def torchrun(base: Path, most: int, environ: dict[str, str]) -> Iterator[Rival]:
    """torchrun, with nobody started yet."""
    logs = base / "torchrun"
    logs.mkdir()
    training = Torchrun(logs, most, environ)
    try:
        yield training
    finally:
        training.end()


@contextmanager
def torchft(base: Path, most: int, environ: dict[str, str]) -> Iterator[Rival]:
    """torchft, with nobody started yet; it is installed into an environment of its own first.

    Raises:
        CommandError: it cannot be installed or imported here.
    """
    install_torchft()
    logs = base / "torchft"
    logs.mkdir()
    training = Torchft(logs, environ)
    try:
        yield training
    finally:
        training.end()


def install_torchft() -> None:
    """Make .dev/torchft: torchft with the torch that this project has.

    Raises:
        CommandError: it cannot be installed or imported here; its words say why.
    """
    python = str(TORCHFT / "bin" / "python")
    probe = [
        python,
        "-c",
        f"import torchft, importlib.metadata as m; assert m.version('torchft') == {TORCHFT_VERSION!r}",
    ]
    with suppress(CommandError):
        run.run(probe, timeout=INSTALL_SECONDS)
        return
    run.run([sys.executable, "-m", "venv", str(TORCHFT)], timeout=INSTALL_SECONDS)
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        raise CommandError("torch is not installed here", argv=("python",), code=None, stderr="")
    ours = Path(spec.origin).parent.parent
    packages = next((TORCHFT / "lib").glob("python*")) / "site-packages"
    (packages / "torch-of-the-project.pth").write_text(f"{ours}\n")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run.run([*pip, f"torchft=={TORCHFT_VERSION}"], timeout=INSTALL_SECONDS)
    run.run(probe, timeout=INSTALL_SECONDS)


def _end(processes: list[run.Process], number: int = signal.SIGTERM) -> None:
    for each in processes:
        with suppress(ProcessLookupError):
            os.killpg(each.pid, number)
    for each in processes:
        each.wait(END_SECONDS)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

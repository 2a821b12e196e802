"""Random histories of whole runs: their workers, coordinators and baselines come, go, are killed and frozen.

Agents, coordinator and workers are real processes; the workers are forked from one that has imported torch
already. Afterwards the run's losses, weights and samples are compared with those of a run of one process that
nobody disturbed: to the bit in exact mode, but for rounding in fast mode.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.lives import LEAST, MOST, POLL_SECONDS, Happening, Life, plan
from bench.same_result import Ledger, committed, differences, read
from hpctools.slurm import run
from hpctools.testing.local_run import LocalRun

PROGRAMS = Path(__file__).with_name("exact_programs")
END_SECONDS = 90.0
START_SECONDS = 90.0
CHECKPOINT = {"intervalInSeconds": 0, "intervalInSteps": 8}
POLICY = {"scaling_timeout_s": 0.05, "back_off_limit_s": 0.0}
ROUNDING = 1e-3
"""How far fast mode may be from the undisturbed run; a sample more or less in a batch is some percent."""


@dataclass(frozen=True)
class Kind:
    """A training that histories have.

    Attributes:
        data: `map` or `streams`.
        loaders: loading processes.
        mode: `exact`, `fast`, or `sharded`: a sharded model in exact mode.
    """

    data: str
    loaders: int
    mode: str

    @property
    def options(self) -> tuple[str, ...]:
        """Of the training program."""
        return ("--data", self.data, "--num-workers", str(self.loaders), "--mode", self.mode)

    @property
    def tolerance(self) -> float:
        """How far the result may be from the undisturbed run's, as a share of it."""
        return ROUNDING if self.mode == "fast" else 0.0

    def __str__(self) -> str:
        return f"{self.mode} mode, {self.data} data, {self.loaders} loading processes"


EXACT = tuple(Kind(data, loaders, "exact") for loaders in (0, 1, 0, 2) for data in ("map", "streams"))
KINDS = (*EXACT[:4], Kind("map", 0, "fast"), *EXACT[4:], Kind("streams", 1, "fast"))
"""Of the seeds in turn; one of five is in fast mode."""
SHARDED = tuple(Kind(data, loaders, "sharded") for loaders in (0, 2) for data in ("map", "streams"))
"""Of further histories in turn."""
SHARDED_MODULES = ("torch.distributed.fsdp", "torch.distributed.checkpoint", "torch.distributed.tensor")


@dataclass(frozen=True)
class History:
    """What happened to a run, and whether its result is that of the undisturbed one.

    Attributes:
        kind: the training.
        done: what was done to it.
        events: of the run's own account, how many of each kind (docs/elastic-reference.md).
        sizes: workers of its steps, each size once in a row.
        problems: how the result differs; empty when it is the same.
        samples: fed in committed steps.
        seconds: that it took.
    """

    seed: int
    kind: Kind
    done: tuple[Happening, ...]
    events: Mapping[str, int]
    sizes: tuple[int, ...]
    problems: tuple[str, ...]
    samples: int
    seconds: float

    def __str__(self) -> str:
        done, sizes = "; ".join(map(str, self.done)), " ".join(map(str, self.sizes))
        verdict = f"PROBLEMS: {'; '.join(self.problems)}" if self.problems else "same result"
        what = f"{self.seconds:5.1f} s, seed {self.seed:2}, {self.kind}"
        return f"{what}: {done}: workers {sizes}: {verdict}"


def kind_of(seed: int) -> Kind:
    """The training of a history."""
    return KINDS[seed % len(KINDS)]


@contextmanager
def zygote() -> Iterator[Callable[..., list[str]]]:
    """A process that forks workers; gives the command of a worker with some arguments."""
    with forking(*SHARDED_MODULES) as launch:
        yield lambda *arguments: [*launch, str(PROGRAMS / "history.py"), *arguments]


@contextmanager
def forking(*modules: str) -> Iterator[list[str]]:
    """A process that forks workers; gives how the command of one begins, before its program.

    Args:
        modules: what it imports beforehand besides what every worker needs.
    """
    with tempfile.TemporaryDirectory(prefix="zygote-") as folder:
        socket = Path(folder) / "socket"
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        program = [sys.executable, str(PROGRAMS / "zygote.py"), str(socket), *modules]
        root = str(PROGRAMS.parents[1])
        environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        reading, writing = os.pipe()
        # Ctrl-C is for us; it ends with its standard input.
        process = run.start(program, stdin=reading, env=environ, new_session=True)
        os.close(reading)
        try:
            _await(socket.exists, START_SECONDS, "the zygote did not start")
            yield [sys.executable, "-I", "-S", str(PROGRAMS / "launcher.py"), str(socket)]
        finally:
            os.close(writing)
            process.wait(END_SECONDS)


def undisturbed(command: Callable[..., list[str]], out: Path, kind: Kind) -> Ledger:
    """The ledger of the training as one ordinary process.

    Raises:
        RuntimeError: it failed.
    """
    out.mkdir()
    (out / "hurry").touch()
    process = run.start(command(str(out), *kind.options))
    if process.wait(END_SECONDS) != 0:
        raise RuntimeError(f"the training failed: {process.returncode}")
    return read(out)


def all_lone(
    command: Callable[..., list[str]], base: Path, kinds: Collection[Kind] = KINDS
) -> dict[Kind, Ledger]:
    """The undisturbed ledgers of some kinds; with loading processes it is that of without."""
    plain = {kind: Kind(kind.data, 0, kind.mode) for kind in kinds}
    ledgers = {
        kind: undisturbed(command, base / f"lone-{kind.mode}-{kind.data}", kind)
        for kind in dict.fromkeys(plain.values())
    }
    return {kind: ledgers[plain[kind]] for kind in kinds}


def history(
    seed: int,
    command: Callable[..., list[str]],
    base: Path,
    lone: Mapping[Kind, Ledger],
    stop: threading.Event | None = None,
    kind: Kind | None = None,
) -> History:
    """Live through one random history in a folder that is not there yet, and compare.

    Args:
        lone: of the seed's kind at least, as `all_lone` has it.
        stop: may be set at any time to end it.
        kind: the training; None: the seed's.

    Raises:
        Stopped: `stop` was set.
    """
    kind, out, begun = kind or kind_of(seed), base / "out", time.monotonic()
    out.mkdir(parents=True)
    words = command(str(out), *kind.options)
    with LocalRun(base, words, (LEAST, MOST), policy=POLICY, checkpoint=CHECKPOINT) as local:
        done = tuple(Life(seed, local, out, stop or threading.Event()).live(plan(seed, len(KINDS))))
        (out / "hurry").touch()
        problems = _end(local)
        events = Counter(event.event for event in local.folder.events())
    ledger = read(out)
    problems += differences(ledger, lone[kind], kind.tolerance)
    steps = committed(ledger)
    sizes = [steps[number]["world"] for number in sorted(steps)]
    changes = [size for size, before in zip(sizes, [0, *sizes], strict=False) if size != before]
    samples = sum(len(step["fed"]) for step in steps.values())
    seconds = time.monotonic() - begun
    return History(seed, kind, done, events, tuple(changes), tuple(problems), samples, seconds)


def _end(local: LocalRun) -> list[str]:
    """Wait for the end; what is wrong with it."""
    try:
        code = local.end(END_SECONDS)
    except subprocess.TimeoutExpired:
        return [f"did not end; {local.folder.status()}; {local.log.read_text()[-1500:]}"]
    status = local.folder.status()
    # The baseline's own code says less: it may have been lost, came for the end only, or was frozen over it.
    if status is not None and status.state == "finished":
        return []
    return [f"exit code {code}; {status}; {local.log.read_text()[-1500:]}"]


def _await(condition: Callable[[], object], limit: float, otherwise: str) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(POLL_SECONDS)

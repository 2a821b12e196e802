"""How long a resize holds up a training: hpctools.elastic beside torchrun with its best settings.

    python bench/resize.py [--quick] [--check]

The pause is the time from the end of the last step before to the end of the first step after, minus a normal
step (the median of the next steps). A model of 5 million parameters, processes of this machine, 2 to 4
workers. For torchrun the steps that are done again, because the last save was before them, are not counted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.report import Goal, report
from hpctools.slurm import run
from hpctools.testing.local_run import LocalRun

PROGRAMS = Path(__file__).with_name("resize_programs")
SMALL, LARGE = 2, 4
NORMAL_STEPS = 5
LIMIT_SECONDS = 120.0
POLL_SECONDS = 0.01
RESOLUTION_SECONDS = 0.01
"""A shorter pause than this is lost in the differences between steps."""
TORCHRUN_SETTINGS = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"


@dataclass(frozen=True)
class Pause:
    """One resize.

    Attributes:
        seconds: that it held up the training.
    """

    before: int
    after: int
    seconds: float

    @property
    def grows(self) -> bool:
        """Whether workers joined."""
        return self.after > self.before


class Training(Protocol):
    """A training that can be resized."""

    def resize(self, workers: int) -> None:
        """Ask for so many workers."""
        ...


class Ours:
    """hpctools.elastic: the baseline of two, and replicas that come and are preempted."""

    def __init__(self, local: LocalRun) -> None:
        self._run = local

    def resize(self, workers: int) -> None:
        """More room for replicas, or some of them are preempted."""
        replicas = workers - SMALL
        if replicas > self._run.capacity:
            self._run.capacity = replicas
        else:
            self._run.preempt(self._run.capacity - replicas)


class Torchrun:
    """torchrun --nnodes 1:N: an agent a node; the first one hosts the rendezvous."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
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
        """Kill what is left, workers too."""
        for agent in self._agents:
            os.killpg(agent.pid, signal.SIGTERM)
        for agent in self._agents:
            agent.wait(LIMIT_SECONDS)

    def _start(self) -> run.Process:
        argv = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nnodes",
            f"1:{LARGE}",
            "--nproc-per-node",
            "1",
        ]
        argv += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self._port}", "--rdzv-id", "bench"]
        argv += ["--rdzv-conf", TORCHRUN_SETTINGS, "--max-restarts", "1000", "--monitor-interval", "0.1"]
        argv += [
            "--local-addr",
            "127.0.0.1",
            "--shutdown-timeout",
            "2",
            str(PROGRAMS / "plain.py"),
            str(self._logs),
        ]
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        with (self._logs / "torchrun.log").open("ab") as log:
            return run.start(argv, stdout=log, stderr=log, env=environ, new_session=True)


@contextmanager
def ours(base: Path) -> Iterator[tuple[Training, Path]]:
    """Our training on two workers, and the folder of its step log."""
    logs = base / "ours"
    logs.mkdir()
    with LocalRun(base, [sys.executable, str(PROGRAMS / "ours.py"), str(logs)], (SMALL, LARGE)) as local:
        yield Ours(local), logs


@contextmanager
def torchrun(base: Path) -> Iterator[tuple[Training, Path]]:
    """The same training under torchrun."""
    logs = base / "torchrun"
    logs.mkdir()
    training = Torchrun(logs)
    training.resize(SMALL)
    try:
        yield training, logs
    finally:
        training.end()


def measure(training: Training, logs: Path, sizes: Sequence[int]) -> list[Pause]:
    """Resize to each size in turn, with some normal steps between."""
    pauses: list[Pause] = []
    _await_steps(logs, SMALL, time.monotonic())
    for wanted in sizes:
        asked = time.monotonic()
        training.resize(wanted)
        _await_steps(logs, wanted, asked)
        for pause in _pauses(_since(_steps(logs), asked)):
            pauses.append(pause)
            print(f"{logs.name}: {pause.before} -> {pause.after}: {pause.seconds:.3f} s", file=sys.stderr)
    return pauses


def _since(steps: list[dict[str, Any]], moment: float) -> list[dict[str, Any]]:
    """The steps from the last one that had ended at a moment."""
    earlier = sum(step["at"] <= moment for step in steps)
    return steps[max(0, earlier - 1) :]


def _pauses(steps: list[dict[str, Any]]) -> Iterator[Pause]:
    """One for each change of size; there is more than one when two workers came one after the other."""
    last_size = [step["at"] for step in steps if step["world"] == steps[-1]["world"]][-NORMAL_STEPS:]
    normal = statistics.median(after - before for before, after in pairwise(last_size))
    for before, after in pairwise(steps):
        if before["world"] != after["world"]:
            seconds = max(0.0, after["at"] - before["at"] - normal)
            yield Pause(before["world"], after["world"], seconds)


def _await_steps(logs: Path, world: int, since: float) -> None:
    def stable() -> bool:
        recent = [step for step in _steps(logs) if step["at"] > since][-NORMAL_STEPS - 1 :]
        return len(recent) > NORMAL_STEPS and all(step["world"] == world for step in recent)

    _await(stable, f"{logs.name} did not come to {world} workers")


def _await(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} within {LIMIT_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def _steps(logs: Path) -> list[dict[str, Any]]:
    lines = [
        line for path in logs.glob("*.jsonl") for line in path.read_text().splitlines() if line.endswith("}")
    ]
    return sorted((json.loads(line) for line in lines), key=lambda step: float(step["at"]))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def row(who: str, what: str, seconds: Sequence[float]) -> dict[str, object]:
    """A line of the table."""
    return {
        "training": who,
        "resize": what,
        "count": len(seconds),
        "p50 s": quantile(seconds, 0.5),
        "p95 s": quantile(seconds, 0.95),
        "max s": max(seconds),
    }


def sizes(resizes: int) -> list[int]:
    """As many resizes, grows and shrinks in turn: by one worker, by two, and so on."""
    there_and_back = [SMALL + 1, SMALL, LARGE, SMALL]
    return [there_and_back[place % len(there_and_back)] for place in range(resizes)]


def main() -> int:
    """Measure, report, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer resizes")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is not met")
    arguments = parser.parse_args()
    pauses: dict[str, list[Pause]] = {}
    counts = {"hpctools": 8 if arguments.quick else 24, "torchrun": 4 if arguments.quick else 20}
    for name, start in (("hpctools", ours), ("torchrun", torchrun)):
        with (
            tempfile.TemporaryDirectory(prefix="bench-resize-") as base,
            start(Path(base)) as (training, logs),
        ):
            pauses[name] = measure(training, logs, sizes(counts[name]))
    kinds = {"grow": True, "shrink": False}
    seconds = {
        (who, kind): [pause.seconds for pause in found if pause.grows == grows]
        for who, found in pauses.items()
        for kind, grows in kinds.items()
    }
    rows = [row(who, kind, values) for (who, kind), values in seconds.items()]
    goals = [
        Goal(f"{kind}_pause_p95", quantile(seconds["hpctools", kind], 0.95), "s", "<=", 0.5) for kind in kinds
    ]
    goals += [
        Goal(
            f"{kind}_torchrun_over_ours_p50",
            quantile(seconds["torchrun", kind], 0.5)
            / max(quantile(seconds["hpctools", kind], 0.5), RESOLUTION_SECONDS),
            "x",
            ">=",
            10,
        )
        for kind in kinds
    ]
    return report("resize", rows, goals, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())

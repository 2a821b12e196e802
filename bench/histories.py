"""Random histories of whole runs: workers come, are preempted, and are killed, at random steps.

Agents, coordinator and workers are real processes; the workers are forked from one that has imported torch
already. Afterwards the run's losses, weights and samples are compared with those of a run of one process that
nobody disturbed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpctools.slurm import run
from hpctools.testing.local_run import LocalRun

PROGRAMS = Path(__file__).with_name("exact_programs")
LEAST, MOST = 1, 4
POLL_SECONDS = 0.02
EVENT_SECONDS = 15.0
END_SECONDS = 150.0
START_SECONDS = 90.0
KINDS = (("map", 0), ("streams", 0), ("map", 1), ("streams", 1))
"""Data set and number of loading processes."""

Ledger = list[dict[str, Any]]


@dataclass(frozen=True)
class History:
    """What happened to a run, and whether its result is that of the undisturbed one.

    Attributes:
        events: what was done to it.
        sizes: workers of its steps, each size once in a row.
        problems: how the result differs; empty when it is the same to the bit.
        samples: fed in committed steps.
        seconds: that it took.
    """

    seed: int
    events: tuple[str, ...]
    sizes: tuple[int, ...]
    problems: tuple[str, ...]
    samples: int
    seconds: float


@contextmanager
def zygote() -> Iterator[Callable[..., list[str]]]:
    """A process that forks workers; gives the command of a worker with some arguments."""
    with tempfile.TemporaryDirectory(prefix="zygote-") as folder:
        socket = Path(folder) / "socket"
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        program = [sys.executable, str(PROGRAMS / "zygote.py"), str(socket)]
        root = str(PROGRAMS.parents[1])
        environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        read, write = os.pipe()
        process = run.start(program, stdin=read, env=environ)
        os.close(read)
        try:
            _await(socket.exists, START_SECONDS, "the zygote did not start")
            launch = [sys.executable, "-I", "-S", str(PROGRAMS / "launcher.py"), str(socket)]
            yield lambda *arguments: [*launch, str(PROGRAMS / "history.py"), *arguments]
        finally:
            os.close(write)
            process.wait(END_SECONDS)


def undisturbed(command: Callable[..., list[str]], out: Path, *options: str) -> Ledger:
    """The ledger of the training as one ordinary process."""
    out.mkdir()
    (out / "hurry").touch()
    process = run.start(command(str(out), *options))
    if process.wait(END_SECONDS) != 0:
        raise RuntimeError(f"the training failed: {process.returncode}")
    return read(out)


def options_of(seed: int) -> tuple[str, ...]:
    """The training's options in a history."""
    data, workers = KINDS[seed % len(KINDS)]
    return ("--data", data, "--num-workers", str(workers))


def history(seed: int, command: Callable[..., list[str]], base: Path, lone: Ledger) -> History:
    """Live through one random history in an empty folder, and compare."""
    out = base / "out"
    out.mkdir(parents=True)
    begun = time.monotonic()
    words = command(str(out), *options_of(seed))
    policy = {"scaling_timeout_s": 0.05}
    with LocalRun(base, words, (LEAST, MOST), policy=policy) as local:
        life = _Life(random.Random(seed), local, out)  # noqa: S311
        events = tuple(life.live())
        (out / "hurry").touch()
        code = local.end(END_SECONDS)
        told = "" if code == 0 else f"; {local.folder.status()}; {local.log.read_text()[-1500:]}"
    ledger = read(out)
    problems = differences(ledger, lone) + ([f"exit code {code}{told}"] if code else [])
    steps = committed(ledger)
    sizes = [steps[number]["world"] for number in sorted(steps)]
    changes = [size for size, before in zip(sizes, [0, *sizes], strict=False) if size != before]
    samples = sum(len(step["fed"]) for step in steps.values())
    return History(seed, events, tuple(changes), tuple(problems), samples, time.monotonic() - begun)


class _Life:
    """What happens to one run."""

    def __init__(self, chance: random.Random, local: LocalRun, out: Path) -> None:
        self._random = chance
        self._run = local
        self._out = out

    def live(self) -> Iterator[str]:
        """Do something at a few random steps; tell what."""
        self._await_steps(1)
        for _ in range(self._random.randint(2, 4)):
            self._await_steps(self._random.randint(1, 5))
            yield self._something()
            self._await_steps(1)

    def _something(self) -> str:
        world = self._world()
        choices = ["grow"] if self._run.capacity < MOST - LEAST else []
        choices += ["preempt"] if self._run.capacity else []
        choices += ["kill worker", "kill worker", "kill agent"] if world > 1 else []
        what = self._random.choice(choices)
        return f"{what} {getattr(self, '_' + what.replace(' ', '_'))()}"

    def _grow(self) -> int:
        self._run.capacity += self._random.randint(1, MOST - LEAST - self._run.capacity)
        world = self._world()
        self._await(lambda: self._world() > world)
        return self._run.capacity

    def _preempt(self) -> int:
        count = self._random.randint(1, self._run.capacity)
        self._run.preempt(count)
        return count

    def _kill_worker(self) -> str:
        pids = {line["worker"]: line["pid"] for line in read(self._out)}
        worker: str = self._random.choice(sorted(pids))
        _kill(pids[worker])
        return worker

    def _kill_agent(self) -> int:
        running = [job for job, agent in self._run.replicas.items() if agent.poll() is None]
        if running:
            self._run.replicas[self._random.choice(running)].kill()
        return len(running)

    def _world(self) -> int:
        steps = committed(read(self._out))
        return int(steps[max(steps)]["world"]) if steps else 0

    def _await_steps(self, count: int) -> None:
        first = len(committed(read(self._out)))
        self._await(lambda: len(committed(read(self._out))) >= first + count)

    def _await(self, condition: Callable[[], bool]) -> None:
        """Until it is so, or the run has ended, or long enough."""
        deadline = time.monotonic() + EVENT_SECONDS
        while not condition() and time.monotonic() < deadline and self._run.baseline[0].poll() is None:
            time.sleep(POLL_SECONDS)


def read(out: Path) -> Ledger:
    """All whole lines that the workers have written."""
    return [
        json.loads(line)
        for path in sorted(out.glob("*.jsonl"))
        for line in path.read_text().splitlines()
        if line.endswith("}")
    ]


def committed(ledger: Ledger) -> dict[int, dict[str, Any]]:
    """By step: its result, and the samples that went through a model in it."""
    fed: dict[int, set[int]] = {}
    for line in ledger:
        if "fed" in line:
            fed.setdefault(line["step"], set()).update(line["fed"])
    return {line["step"]: {**line, "fed": fed.get(line["step"], set())} for line in ledger if "loss" in line}


def differences(ledger: Ledger, lone: Ledger) -> list[str]:
    """How a run's result differs from the undisturbed one's."""
    problems = []
    ours, theirs = committed(ledger), committed(lone)
    if sorted(ours) != sorted(theirs):
        problems.append(f"{len(ours)} steps instead of {len(theirs)}")
    for line in ledger:
        expected = theirs.get(line["step"]) if "loss" in line else None
        if expected is not None and any(line[key] != expected[key] for key in ("loss", "drawn", "committed")):
            problems.append(f"step {line['step']} of {line['worker']} has another result")
    for step in sorted(set(ours) & set(theirs)):
        if not ours[step]["fed"] >= theirs[step]["fed"]:
            problems.append(f"step {step} was not fed {theirs[step]['fed'] - ours[step]['fed']}")
    finals = [(line["final"], line["lr"]) for line in ledger if "final" in line]
    (final,) = ((line["final"], line["lr"]) for line in lone if "final" in line)
    if not finals or any(each != final for each in finals):
        problems.append(f"weights at the end of {len(finals)} workers")
    return problems + _not_once(lone) + _not_once(_indexed(ledger))


def _indexed(ledger: Ledger) -> Ledger:
    """One line a step; with streams the undisturbed run's, whose results were compared already."""
    return list({line["step"]: line for line in ledger if line.get("committed")}.values())


def _not_once(ledger: Ledger) -> list[str]:
    """Samples that an epoch did not have exactly once, by the committed steps' own account."""
    seen: dict[int, Counter[int]] = {}
    for line in ledger:
        if "loss" in line:
            seen.setdefault(line["epoch"], Counter()).update(line["committed"])
    wrong = {epoch: [each for each, count in found.items() if count != 1] for epoch, found in seen.items()}
    return [f"epoch {epoch}: not exactly once: {numbers[:5]}" for epoch, numbers in wrong.items() if numbers]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _await(condition: Callable[[], object], limit: float, otherwise: str) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(POLL_SECONDS)


def all_lone(command: Callable[..., list[str]], base: Path) -> dict[Sequence[str], Ledger]:
    """The undisturbed ledgers of all kinds; with loading processes it is that of without."""
    found: dict[Sequence[str], Ledger] = {}
    for seed, (data, _) in enumerate(KINDS):
        options = options_of(seed)
        plain = ("--data", data, "--num-workers", "0")
        found[options] = found.get(plain) or undisturbed(command, base / f"lone-{data}", *plain)
    return found

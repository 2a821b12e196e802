"""Elastic training on GPUs: same result, fast mode beside DDP, and how long a resize holds it up.

    ./dev bench cuda [--quick] [--check]

For the day when a GPU is at hand; says so and ends with exit code 3 where torch finds none.

One process over nccl: its group is made, used and aborted, twice. Several processes on one GPU over gloo, as
nccl refuses that; and over nccl, too, where each says that it is a host of its own (bench/one_gpu.py): they
do what workers on several GPUs do, but slower. With several GPUs one each, over nccl. There a run grows,
loses a worker (kill -9) and shrinks, in exact mode (losses and weights equal to the bit to those of one
process on a GPU) and in fast mode (but for rounding). Resizes are timed with 5 and 50 million parameters, of
sharded models, too; and fast mode is measured beside DistributedDataParallel over the same library.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from bench import sharded, steps
from bench.course import say, until_ctrl_c
from bench.exact import FAST_OVER_DDP, Beside, beside
from bench.histories import POLICY, PROGRAMS, ROUNDING
from bench.report import Goal, report
from bench.rigs import await_size, end_well, local
from bench.same_result import Ledger, committed, differences, read
from hpctools.testing.local_run import LocalRun

NO_DEVICE = 3
LEAST, MOST = 2, 4
LIMIT_SECONDS = 180.0
POLL_SECONDS = 0.05
GROW_SECONDS, SHRINK_SECONDS = 0.5, 0.3
WIDTHS = (1536, 6144)
"""5 and 77 million parameters."""
PARAMETERS = (5_000_000, 50_000_000)
LARGE = "50 M"
DEVICE = {"BENCH_DEVICE": "cuda"}
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""What torch.use_deterministic_algorithms asks for."""


@dataclass(frozen=True)
class Resized:
    """A run that grew and shrank.

    Attributes:
        over: libraries by which gradients were added up, of all its steps.
        resizes: details of its events.
        problems: how its result differs from that of one process.
        size: of the model; empty for a small one.
    """

    mode: str
    over: tuple[str, ...]
    resizes: tuple[dict[str, Any], ...]
    problems: tuple[str, ...]
    size: str = ""

    @property
    def name(self) -> str:
        """What was resized."""
        return f"{self.mode} mode{', ' * bool(self.size)}{self.size}, over {' and '.join(self.over)}"

    def row(self) -> dict[str, object]:
        """A line of the table."""
        pauses = ", ".join(map(_told, self.resizes))
        return {
            "what": f"resizes in {self.name}",
            "count": len(self.resizes),
            "ours": f"{pauses} s",
            "theirs": "",
            "result": "" if self.size else "; ".join(self.problems)[:200] or "the same",
        }


def _told(resize: dict[str, Any]) -> str:
    lost = " lost" if resize.get("recovered") else ""
    return f"{resize['from']}->{resize['to']}{lost} {resize['pause_s']:.2f}"


def alone() -> dict[str, Any]:
    """One process over nccl.

    Raises:
        RuntimeError: it failed.
    """
    program = [sys.executable, str(PROGRAMS / "nccl_alone.py")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"nccl in one process failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def alone_row(found: dict[str, Any]) -> dict[str, object]:
    """A line of the table."""
    first, second = found["first"], found["second"]
    well = all(each["right"] and each["ended"] for each in (first, second))
    return {
        "what": "nccl, one process: linked, 20 MB added up, aborted",
        "count": 2,
        "ours": f"{first['link_s']:.2f} s, {1000 * second['all_reduce_s']:.2f} ms, {first['abort_s']:.2f} s",
        "theirs": "",
        "result": "right" if well else f"WRONG: {found}",
    }


def lone(base: Path, mode: str) -> Ledger:
    """The ledger of the training as one process on a GPU."""
    out = base / f"lone-{mode}"
    if not out.exists():
        out.mkdir()
        (out / "hurry").touch()
        subprocess.run(_training(out, mode), check=True, timeout=LIMIT_SECONDS, stdout=subprocess.DEVNULL)
    return read(out)


def resized(base: Path, mode: str, rounds: int, own_host: bool = False) -> Resized:
    """A run that grows, loses a worker and shrinks so many times."""
    here = base / f"{mode}-{own_host}"
    out = here / "out"
    out.mkdir(parents=True)
    command = [*_training(out, mode), *["--own-host"] * own_host]
    with LocalRun(here, command, (LEAST, MOST), policy=POLICY) as run, _telling(run):
        _await_world(out, LEAST)
        for _ in range(rounds):
            run.capacity = MOST - LEAST
            _await_world(out, MOST)
            _kill_a_worker(out)
            _await_world(out, MOST, beyond=max(committed(read(out))) + 1)
            run.preempt(MOST - LEAST)
            _await_world(out, LEAST)
        (out / "hurry").touch()
        run.end(LIMIT_SECONDS)
        events = run.folder.events()
    steps = committed(read(out)).values()
    problems = differences(read(out), lone(base, mode), ROUNDING if mode == "fast" else 0.0)
    warnings = [str(event.detail["message"]) for event in events if event.event == "warning"]
    problems += [each for each in warnings if "nccl" in each]
    resizes = tuple(
        dict(event.detail) for event in events if event.event == "resize" and "pause_s" in event.detail
    )
    over = tuple(sorted({str(step["over"]) for step in steps}))
    return Resized(mode, over, resizes, tuple(problems))


def _training(out: Path, mode: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / "history.py"), str(out), "--mode", mode, "--device", "cuda"]


def _kill_a_worker(out: Path) -> None:
    """The process that was fed last, which is in the middle of a step."""
    os.kill(max(read(out), key=lambda line: float(line.get("at", 0.0)))["pid"], signal.SIGKILL)


def _await_world(out: Path, world: int, beyond: int = 0) -> None:
    """Until the last step was done by so many workers.

    Args:
        beyond: a step that has to be over before.
    """
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        steps = committed(read(out))
        if steps and steps[max(steps)]["world"] == world and max(steps) > beyond:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"the run did not come to {world} workers within {LIMIT_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def paused(parameters: int, rounds: int, own_host: bool) -> Resized:
    """Resizes of a run in fast mode with so many parameters; its result is not compared."""
    width = round((parameters / 4) ** 0.5)
    environ = {"BENCH_WIDTH": str(width), "BENCH_SAMPLE_SECONDS": "0.002", "BENCH_MODE": "fast", **DEVICE}
    with local(LEAST, MOST, environ | _own_host(own_host)) as rig:
        for replicas in [0, *[MOST - LEAST, 0] * rounds]:
            rig.room(replicas)
            await_size(rig.logs, LEAST + replicas, time.monotonic())
        over = tuple(sorted({str(step["over"]) for step in steps.read(rig.logs)}))
        resizes = tuple(
            dict(event.detail)
            for event in rig.folder.events()
            if event.event == "resize" and "pause_s" in event.detail
        )
    return Resized("fast", over, resizes, (), f"{parameters / 1e6:g} M")


def sharded_paused(parameters: int, rounds: int, own_host: bool) -> Resized:
    """The same of a sharded model."""
    with tempfile.TemporaryDirectory(prefix="bench-cuda-", ignore_cleanup_errors=True) as folder:
        resizes = sharded.measure(Path(folder), parameters, rounds, DEVICE | _own_host(own_host))
        logs = Path(folder).glob("logs/*.jsonl")
        lines = [json.loads(line) for path in logs for line in path.open() if "}" in line]
    over = tuple(sorted({str(line["over"]) for line in lines}))
    return Resized("sharded", over, tuple(resizes), (), f"{parameters / 1e6:g} M")


def _own_host(own_host: bool) -> dict[str, str]:
    return {"BENCH_OWN_HOST": "1"} if own_host else {}


@contextmanager
def _telling(run: LocalRun) -> Iterator[None]:
    """When it goes wrong, what the run has to say."""
    try:
        yield
    except TimeoutError:
        say(f"{run.folder.status()}; {run.log.read_text(errors='replace')[-3000:]}")
        raise


@dataclass
class Found:
    """What was measured until now."""

    rows: list[dict[str, object]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)

    def add_alone(self, found: dict[str, Any]) -> None:
        """One process over nccl."""
        self.rows.append(alone_row(found))
        right = self.rows[-1]["result"] == "right"
        self.goals.append(Goal("nccl in one process is right, and ends", float(right), "", ">=", 1))

    def add_beside(self, measured: Beside, width: int, over: str) -> None:
        """Fast mode beside DDP."""
        self.rows.append({**measured.row(), "what": f"{measured.row()['what']}, width {width}, {over}"})
        name = f"fast_over_ddp_{measured.processes}_processes_width_{width}_{over}"
        self.goals.append(Goal(name, measured.ratio, "x", ">=", FAST_OVER_DDP))

    def add_resized(self, run: Resized) -> None:
        """A run that grew and shrank."""
        self.rows.append(run.row())
        if not run.size:  # its steps take longer at some point, so that its pauses mean nothing
            self.goals.append(Goal(f"differences in {run.name}", len(run.problems), "", "<=", 0))
            return
        planned = [each for each in run.resizes if not each.get("recovered")]
        for kind, grows, limit in (("grow", True, GROW_SECONDS), ("shrink", False, SHRINK_SECONDS)):
            pauses = [each["pause_s"] for each in planned if (each["to"] > each["from"]) == grows]
            if pauses and run.size != LARGE:
                value = statistics.median(pauses)
                self.goals.append(Goal(f"{kind}_pause_p50 in {run.name}", value, "s", "<=", limit))


def measure(found: Found, *, quick: bool) -> None:
    """Everything, one after the other."""
    rounds, hosts = 1 if quick else 3, [False, True] if torch.cuda.device_count() < MOST else [False]
    found.add_alone(alone())
    say(str(found.rows[-1]))
    with tempfile.TemporaryDirectory(prefix="bench-cuda-", ignore_cleanup_errors=True) as folder:
        base = Path(folder)
        for mode, own_host in [("exact", False), *(("fast", each) for each in hosts)]:
            found.add_resized(resized(base, mode, rounds, own_host))
            say(str(found.rows[-1]))
        for parameters, own_host in product(PARAMETERS[: 1 if quick else 2], hosts):
            for measured in (paused, sharded_paused):
                found.add_resized(measured(parameters, rounds, own_host))
                say(str(found.rows[-1]))
    for width, own_host in product(WIDTHS[: 1 if quick else 2], hosts):
        for processes in _sizes(torch.cuda.device_count()):
            options = ("--device", "cuda", "--width", str(width), *["--own-host"] * own_host)
            ratio = beside(processes, 0.0, 5 if quick else 15, options)
            found.add_beside(ratio, width, ratio.over)
            say(str(found.rows[-1]))


def _sizes(devices: int) -> Sequence[int]:
    """How many processes to measure: several on one GPU, and as many as there are GPUs."""
    return sorted({2, *([4] if devices == 1 else []), *([devices] if devices > 1 else [])})


def main() -> int:
    """Measure, report, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer resizes and steps")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is not met")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        say(f"bench cuda: torch {torch.__version__} finds no CUDA device here: nothing was measured")
        return NO_DEVICE
    os.environ.update(DETERMINISTIC)
    end_well()
    found = Found()
    with until_ctrl_c() as course:
        measure(found, quick=arguments.quick)
    return report("cuda", found.rows, found.goals, check=arguments.check, complete=course.complete)


if __name__ == "__main__":
    sys.exit(main())

"""Elastic training on GPUs: same result, fast mode beside DDP, and how long a resize holds it up.

    ./dev bench cuda [--quick] [--check]

For the day when a GPU is at hand; says so and ends with exit code 3 where torch finds none.

One process over nccl: its group is made, used and aborted, twice. Several processes on one GPU, which nccl
refuses, over gloo; with several GPUs one each, over nccl. There fast mode is measured beside
DistributedDataParallel over the same library, and a run grows and shrinks, in exact mode (losses and weights
equal to the bit to those of one process on a GPU) and in fast mode (but for rounding).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from bench.course import say, until_ctrl_c
from bench.exact import FAST_OVER_DDP, Beside, beside
from bench.histories import POLICY, PROGRAMS, ROUNDING
from bench.report import Goal, report
from bench.rigs import end_well
from bench.same_result import Ledger, committed, differences, read
from hpctools.testing.local_run import LocalRun

NO_DEVICE = 3
LEAST, MOST = 2, 4
LIMIT_SECONDS = 180.0
POLL_SECONDS = 0.05
GROW_SECONDS, SHRINK_SECONDS = 0.5, 0.3
WIDTHS = (1536, 6144)
"""5 and 77 million parameters."""
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""What torch.use_deterministic_algorithms asks for."""


@dataclass(frozen=True)
class Resized:
    """A run that grew and shrank.

    Attributes:
        over: libraries by which gradients were added up, of all its steps.
        resizes: details of its events.
        problems: how its result differs from that of one process.
    """

    mode: str
    over: tuple[str, ...]
    resizes: tuple[dict[str, Any], ...]
    problems: tuple[str, ...]

    def row(self) -> dict[str, object]:
        """A line of the table."""
        pauses = ", ".join(f"{each['from']}->{each['to']} {each['pause_s']:.2f}" for each in self.resizes)
        return {
            "what": f"resizes in {self.mode} mode over {', '.join(self.over)}",
            "count": len(self.resizes),
            "ours": f"{pauses} s",
            "theirs": "",
            "result": "; ".join(self.problems)[:200] or "the same",
        }


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
    out.mkdir()
    (out / "hurry").touch()
    subprocess.run(_training(out, mode), check=True, timeout=LIMIT_SECONDS, stdout=subprocess.DEVNULL)
    return read(out)


def resized(base: Path, mode: str, rounds: int) -> Resized:
    """A run that grows and shrinks so many times."""
    here = base / mode
    out = here / "out"
    out.mkdir(parents=True)
    with LocalRun(here, _training(out, mode), (LEAST, MOST), policy=POLICY) as local:
        _await_world(out, LEAST)
        for _ in range(rounds):
            local.capacity = MOST - LEAST
            _await_world(out, MOST)
            local.preempt(MOST - LEAST)
            _await_world(out, LEAST)
        (out / "hurry").touch()
        local.end(LIMIT_SECONDS)
        events = local.folder.events()
    steps = committed(read(out)).values()
    problems = differences(read(out), lone(base, mode), ROUNDING if mode == "fast" else 0.0)
    problems += [str(event.detail["message"]) for event in events if event.event == "warning"]
    resizes = tuple(dict(event.detail) for event in events if event.event == "resize")
    over = tuple(sorted({str(step["over"]) for step in steps}))
    return Resized(mode, over, resizes, tuple(problems))


def _training(out: Path, mode: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / "history.py"), str(out), "--mode", mode, "--device", "cuda"]


def _await_world(out: Path, world: int) -> None:
    """Until the last step was done by so many workers."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        steps = committed(read(out))
        if steps and steps[max(steps)]["world"] == world:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"the run did not come to {world} workers within {LIMIT_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


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

    def add_beside(self, measured: Beside, width: int) -> None:
        """Fast mode beside DDP."""
        self.rows.append({**measured.row(), "what": f"{measured.row()['what']}, width {width}"})
        name = f"fast_over_ddp_{measured.processes}_processes_width_{width}"
        self.goals.append(Goal(name, measured.ratio, "x", ">=", FAST_OVER_DDP))

    def add_resized(self, run: Resized) -> None:
        """A run that grew and shrank."""
        self.rows.append(run.row())
        self.goals.append(Goal(f"differences in {run.mode} mode", len(run.problems), "", "<=", 0))
        for kind, grows, limit in (("grow", True, GROW_SECONDS), ("shrink", False, SHRINK_SECONDS)):
            pauses = [each["pause_s"] for each in run.resizes if (each["to"] > each["from"]) == grows]
            if pauses:
                value = statistics.median(pauses)
                self.goals.append(Goal(f"{kind}_pause_p50_{run.mode}", value, "s", "<=", limit))


def measure(found: Found, *, quick: bool) -> None:
    """Everything, one after the other."""
    found.add_alone(alone())
    say(str(found.rows[-1]))
    with tempfile.TemporaryDirectory(prefix="bench-cuda-", ignore_cleanup_errors=True) as folder:
        for mode in ("exact", "fast"):
            found.add_resized(resized(Path(folder), mode, 1 if quick else 3))
            say(str(found.rows[-1]))
    for processes in _sizes(torch.cuda.device_count()):
        for width in WIDTHS[: 1 if quick else 2]:
            options = ("--device", "cuda", "--width", str(width))
            found.add_beside(beside(processes, 0.0, 5 if quick else 15, options), width)
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

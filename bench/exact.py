"""Same result and no price: random histories of resizes and crashes, and fast mode beside plain DDP.

    ./dev bench exact [--quick] [--check]

In each history workers, agents, the coordinator and the baseline of a run come, are preempted, killed and
frozen at random steps, and it begins again from a checkpoint (bench/lives.py); losses, weights and the ledger
of samples are compared with those of one undisturbed process: to the bit in exact mode (as many again as a
third of them are of sharded models), but for rounding in fast mode.

Fast mode and DistributedDataParallel train the same model of 5 million parameters in turn in the same
processes, so that whatever else the machine does meets both; the ratio is that of the steps per second over
all blocks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.course import say, until_ctrl_c
from bench.histories import KINDS, PROGRAMS, SHARDED, History, all_lone, history, zygote
from bench.lives import THEMES
from bench.report import Goal, report
from bench.rigs import end_well
from hpctools.testing.local_run import LocalRun

AT_A_TIME = 3
LIMIT_SECONDS = 180.0
POLL_SECONDS = 0.05
FAST_OVER_DDP = 0.97
STEPS = 10
HISTORIES, QUICK_HISTORIES = 63, 12
"""51 of 63 are in exact mode."""
SHARDED_SHARE = 3
"""One history of a sharded model, in exact mode, beside so many others."""
SETTINGS = ((2, 0.0), (2, 0.004), (4, 0.0), (4, 0.008))
"""Processes, and seconds of sleep per sample, which stand for a device that computes."""


@dataclass(frozen=True)
class Beside:
    """Fast mode and DDP in one setting.

    Attributes:
        ours, theirs: seconds of each block of STEPS steps.
        over: the library by which both add up gradients.
    """

    processes: int
    delay: float
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    over: str

    @property
    def name(self) -> str:
        """The setting, as a part of a name."""
        return f"{self.processes}_processes_{self.delay * 1000:g}_ms"

    @property
    def ratio(self) -> float:
        """Our steps per second over theirs."""
        return sum(self.theirs) / sum(self.ours)

    def row(self) -> dict[str, object]:
        """A line of the table."""
        return {
            "what": f"fast mode beside DDP, {self.processes} processes, {self.delay * 1000:g} ms a sample",
            "count": len(self.ours) * STEPS,
            "ours": f"{1000 * statistics.median(self.ours) / STEPS:.1f} ms a step",
            "theirs": f"{1000 * statistics.median(self.theirs) / STEPS:.1f} ms a step",
            "result": f"{self.ratio:.3f} of their steps per second",
        }


def beside(processes: int, delay: float, blocks: int, more: Sequence[str] = ()) -> Beside:
    """Measure one setting; with more options of the program (bench/exact_programs/beside_ddp.py)."""
    with tempfile.TemporaryDirectory(prefix="bench-exact-", ignore_cleanup_errors=True) as folder:
        base = Path(folder)
        out = base / "out"
        out.mkdir()
        program = [sys.executable, str(PROGRAMS / "beside_ddp.py"), str(out)]
        options = ["--delay", str(delay), "--blocks", str(blocks), "--steps", str(STEPS), *more]
        with LocalRun(base, [*program, *options], (processes, processes)) as local:
            deadline = time.monotonic() + LIMIT_SECONDS
            while not (out / "seconds.json").exists():
                if time.monotonic() > deadline or local.baseline[0].poll() is not None:
                    raise TimeoutError(f"no figures: {local.folder.status()}")
                time.sleep(POLL_SECONDS)
            found = json.loads((out / "seconds.json").read_text())
            ours, theirs = zip(*found["seconds"], strict=True)
    return Beside(processes, delay, ours, theirs, found["over"])


def histories(count: int, found: list[History]) -> None:
    """Live through so many random histories, a few at a time; each is added when it is through."""
    folder = tempfile.TemporaryDirectory(prefix="bench-exact-", ignore_cleanup_errors=True)
    with folder, zygote() as command, ThreadPoolExecutor(AT_A_TIME) as pool:
        base, stop = Path(folder.name), threading.Event()
        lone = all_lone(command, base, (*KINDS, *SHARDED))
        lives = [pool.submit(history, seed, command, base / str(seed), lone, stop) for seed in range(count)]
        lives += [
            pool.submit(
                history, seed, command, base / f"sharded-{seed}", lone, stop, SHARDED[seed % len(SHARDED)]
            )
            for seed in range(count // SHARDED_SHARE)
        ]
        try:
            for life in as_completed(lives):
                found.append(life.result())
                say(f"{len(found):2} of {len(lives)}: {found[-1]}")
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def history_rows(found: Sequence[History]) -> list[dict[str, object]]:
    """A line for each kind of training."""
    kinds = dict.fromkeys(each.kind for each in found)
    return [_history_row([each for each in found if each.kind == kind]) for kind in kinds]


def _history_row(some: Sequence[History]) -> dict[str, object]:
    done = Counter(each.kind for life in some for each in life.done)
    return {
        "what": f"histories, {some[0].kind}",
        "count": len(some),
        "ours": ", ".join(f"{count} {kind}" for kind, count in sorted(done.items())),
        "theirs": f"{sum(each.samples for each in some)} samples",
        "result": f"{sum(not each.problems for each in some)} the same",
    }


def history_goals(found: Sequence[History]) -> list[Goal]:
    """What was promised of histories."""
    goals = []
    names = {"exact": "equal to the bit", "fast": "with every sample once", "sharded": "equal to the bit"}
    for mode, name in names.items():
        some = [each for each in found if each.kind.mode == mode]
        same = sum(not each.problems for each in some)
        goals.append(Goal(f"histories in {mode} mode {name}", same, "histories", ">=", len(some)))
    missing = set(THEMES) - {each.kind for life in found for each in life.done}
    goals.append(Goal("kinds of events that no history had", len(missing), "kinds", "<=", 0))
    for event in ("takeover", "resumed"):
        count = sum(each.events.get(event, 0) for each in found)
        goals.append(Goal(f"events `{event}` in them", count, "events", ">=", 1))
    return goals


def beside_goal(measured: Beside) -> Goal:
    """What was promised of fast mode in one setting."""
    return Goal(f"fast_over_ddp_{measured.name}", measured.ratio, "x", ">=", FAST_OVER_DDP)


@dataclass
class Found:
    """What was measured until now."""

    lives: list[History] = field(default_factory=list)
    beside: list[Beside] = field(default_factory=list)


def measure(found: Found, count: int, blocks: int) -> None:
    """Fast mode beside DDP, and then the histories."""
    for setting in SETTINGS:
        found.beside.append(beside(*setting, blocks))
        say(f"{found.beside[-1].name}: {found.beside[-1].ratio:.3f} of DDP's steps per second")
    histories(count, found.lives)


def main() -> int:
    """Measure, report, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer histories and steps")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is not met")
    arguments = parser.parse_args()
    end_well()
    found = Found()
    with until_ctrl_c() as course:
        measure(found, *((QUICK_HISTORIES, 5) if arguments.quick else (HISTORIES, 15)))
    rows = history_rows(found.lives) + [each.row() for each in found.beside]
    goals = history_goals(found.lives) + [beside_goal(each) for each in found.beside]
    return report("exact", rows, goals, check=arguments.check, complete=course.complete)


if __name__ == "__main__":
    sys.exit(main())

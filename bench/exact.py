"""Same result and no price: random histories of resizes and crashes, and fast mode beside plain DDP.

    python bench/exact.py [--quick] [--check]

In each history the workers of a run come, are preempted and are killed at random steps (bench/histories.py);
losses, weights and the ledger of samples are compared, to the bit, with those of one undisturbed process.

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
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.histories import PROGRAMS, History, all_lone, history, options_of, zygote
from bench.report import Goal, report
from hpctools.testing.local_run import LocalRun

AT_A_TIME = 3
LIMIT_SECONDS = 180.0
POLL_SECONDS = 0.05
FAST_OVER_DDP = 0.97
STEPS = 10
SETTINGS = ((2, 0.0), (2, 0.004), (4, 0.0), (4, 0.008))
"""Processes, and seconds of sleep per sample, which stand for a device that computes."""


@dataclass(frozen=True)
class Beside:
    """Fast mode and DDP in one setting.

    Attributes:
        ours, theirs: seconds of each block of STEPS steps.
    """

    processes: int
    delay: float
    ours: tuple[float, ...]
    theirs: tuple[float, ...]

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


def beside(processes: int, delay: float, blocks: int) -> Beside:
    """Measure one setting."""
    with tempfile.TemporaryDirectory(prefix="bench-exact-") as folder:
        base = Path(folder)
        out = base / "out"
        out.mkdir()
        program = [sys.executable, str(PROGRAMS / "beside_ddp.py"), str(out)]
        options = ["--delay", str(delay), "--blocks", str(blocks), "--steps", str(STEPS)]
        with LocalRun(base, [*program, *options], (processes, processes)) as local:
            deadline = time.monotonic() + LIMIT_SECONDS
            while not (out / "seconds.json").exists():
                if time.monotonic() > deadline or local.baseline[0].poll() is not None:
                    raise TimeoutError(f"no figures: {local.folder.status()}")
                time.sleep(POLL_SECONDS)
            ours, theirs = zip(*json.loads((out / "seconds.json").read_text()), strict=True)
    return Beside(processes, delay, ours, theirs)


def histories(count: int) -> list[History]:
    """Live through so many random histories, a few at a time."""
    with zygote() as command, tempfile.TemporaryDirectory(prefix="bench-exact-") as folder:
        base = Path(folder)
        lone = all_lone(command, base)

        def one(seed: int) -> History:
            found = history(seed, command, base / str(seed), lone[options_of(seed)])
            sizes = ", ".join(map(str, found.sizes))
            print(
                f"{seed}: {'; '.join(found.events)}: {sizes} workers {found.problems or ''}", file=sys.stderr
            )
            return found

        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(one, range(count)))


def rows_of(found: list[History]) -> list[dict[str, object]]:
    """A line for each kind of data set."""
    by_kind: dict[tuple[str, ...], list[History]] = {}
    for each in found:
        by_kind.setdefault(options_of(each.seed), []).append(each)
    return [
        {
            "what": f"histories, {kind[1]} data, {kind[3]} loading processes",
            "count": len(some),
            "ours": _events(some),
            "theirs": f"{sum(each.samples for each in some)} samples",
            "result": f"{sum(not each.problems for each in some)} equal to the bit",
        }
        for kind, some in by_kind.items()
    ]


def _events(some: list[History]) -> str:
    kinds = Counter(event.rpartition(" ")[0] for each in some for event in each.events)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def main() -> int:
    """Measure, report, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer histories and steps")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is not met")
    arguments = parser.parse_args()
    count, blocks = (12, 5) if arguments.quick else (52, 15)
    measured = [beside(*setting, blocks) for setting in SETTINGS]
    found = histories(count)
    equal = sum(not each.problems for each in found)
    goals = [Goal("histories_equal_to_the_bit", equal, "histories", ">=", count)]
    goals += [
        Goal(
            f"fast_over_ddp_{each.processes}_processes_{each.delay * 1000:g}_ms", each.ratio, "x", ">=", 0.97
        )
        for each in measured
    ]
    rows = rows_of(found) + [each.row() for each in measured]
    return report("exact", rows, goals, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())

"""How long a resize holds up a sharded training: 2 -> 4 -> 2 workers, 5 and 50 million parameters with AdamW.

In fast mode and in exact mode, whose normal steps the table has side by side.

    ./dev bench sharded [--quick] [--check]

The pause is the run's own figure (event `resize`): the first step after, minus a normal one. `state` is the
part of it in which the next model is built and shards move; the rest is the first step with a new mesh.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.course import say, until_ctrl_c
from bench.report import Goal, report
from bench.rigs import end_well
from hpctools.testing.local_run import LocalRun

PROGRAM = Path(__file__).with_name("elastic_programs") / "sharded.py"
SMALL, LARGE = 2, 4
LIMIT_SECONDS = 180.0
POLL_SECONDS = 0.05
STEPS_BETWEEN = 5


def measure(
    base: Path, parameters: int, rounds: int, environ: Mapping[str, str] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """The resizes of a run that grows and shrinks so many times.

    Args:
        environ: more variables of its workers.
    """
    logs, stop = base / "logs", base / "stop"
    logs.mkdir()
    command = ["env", *(f"{name}={value}" for name, value in environ.items())]
    command += [sys.executable, str(PROGRAM), str(logs), str(parameters), str(stop)]
    with LocalRun(base, command, (SMALL, LARGE)) as local:
        _await_steps(logs, SMALL)
        for _ in range(rounds):
            local.capacity = LARGE - SMALL
            _await_steps(logs, LARGE)
            local.preempt(LARGE - SMALL)
            _await_steps(logs, SMALL)
        stop.touch()
        resizes = [
            event.detail
            for event in local.folder.events()
            if event.event == "resize" and "pause_s" in event.detail
        ]
    for each in resizes:
        say(f"{parameters:>9} parameters: {each}")
    return resizes


def row(parameters: int, mode: str, resizes: list[dict[str, Any]], *, grows: bool) -> dict[str, object]:
    """A line of the table."""
    chosen = [each for each in resizes if (each["to"] > each["from"]) == grows]
    return {
        "parameters": f"{parameters / 1e6:g} M",
        "mode": mode,
        "resize": "grow" if grows else "shrink",
        "count": len(chosen),
        "pause p50 s": statistics.median(each["pause_s"] for each in chosen),
        "pause max s": max(each["pause_s"] for each in chosen),
        "state p50 s": statistics.median(each["phases"]["state"] for each in chosen),
        "normal step s": statistics.median(each["normal_step_s"] for each in chosen),
    }


def _await_steps(logs: Path, world: int) -> None:
    """Until the last few steps were done by so many workers."""
    since = time.monotonic()
    _await(lambda: _stable(logs, world, since), f"the run did not come to {world} workers")


def _stable(logs: Path, world: int, since: float) -> bool:
    lines = [
        json.loads(line)
        for path in logs.glob("*.jsonl")
        for line in path.read_text().splitlines()
        if "}" in line
    ]
    recent = sorted((line for line in lines if line["at"] > since), key=lambda line: float(line["at"]))
    return len(recent) > STEPS_BETWEEN and all(line["world"] == world for line in recent[-STEPS_BETWEEN:])


def _await(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} within {LIMIT_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def main() -> int:
    """Measure, report, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one grow and one shrink of each")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is not met")
    arguments = parser.parse_args()
    end_well()
    rows, goals = [], []
    with until_ctrl_c() as course:
        for parameters, mode in itertools.product((5_000_000, 50_000_000), ("fast", "exact")):
            with tempfile.TemporaryDirectory(prefix="bench-sharded-", ignore_cleanup_errors=True) as base:
                rounds = 1 if arguments.quick else 3
                resizes = measure(Path(base), parameters, rounds, {"BENCH_MODE": mode})
            for grows in (True, False):
                rows.append(row(parameters, mode, resizes, grows=grows))
                if parameters == 5_000_000:
                    goals.append(_goal(rows[-1]))
    return report("sharded", rows, goals, check=arguments.check, complete=course.complete)


def _goal(line: dict[str, object]) -> Goal:
    return Goal(f"{line['mode']}_{line['resize']}_pause_p50", float(str(line["pause p50 s"])), "s", "<=", 0.5)


if __name__ == "__main__":
    sys.exit(main())

"""What is left of a training's throughput when its nodes come and go, beside an oracle that resizes for free.

    ./dev bench goodput [--quick] [--check] [--rig cluster|local] [--minutes M] [--seed N]

A seeded trace of capacity is played: urgent jobs take nodes and give them back (on the cluster: real Slurm
daemons). The oracle has the same steps per second at each size (the median that was measured in the same
run), changes its size in the moment in which the capacity changes, and pays nothing for it. Beside it stands
what the same trace leaves to a job that only ever has the least number of nodes, and to one that Slurm
requeues (148 s each time, measured): both on paper, in their best case.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from bench import rigs, steps
from bench.course import say, until_ctrl_c
from bench.report import Goal, report
from bench.trace import Change, complete, oracle, requeued, trace
from hpctools.elastic.folder import RunFolder

LEAST, MOST = 2, 8
ENVIRON = {"BENCH_WIDTH": "64", "BENCH_SAMPLE_SECONDS": "0.04"}
SAMPLES, BATCH = 24 * 400, 24  # of an epoch and of a step; as in elastic_programs/model.py
MINUTES, MEAN_SECONDS, SHARE = 20.0, 75.0, 0.95
QUICK_MINUTES, QUICK_MEAN_SECONDS = 3.0, 40.0


@dataclass(frozen=True)
class Played:
    """A run on a trace.

    Attributes:
        done: steps that were completed.
        rates: steps per second by size, all sizes.
        resizes, recoveries: of the run, while the trace was played.
        audit: of all samples.
    """

    done: int
    rates: dict[int, float]
    resizes: int
    recoveries: int
    audit: steps.Audit


def play(rig: rigs.Rig, changes: Sequence[Change], seconds: float) -> Played:
    """Play a trace on a run."""
    rig.room(rig.most - rig.least)
    rigs.await_size(rig.logs, rig.most, time.monotonic())
    before = _resizes(rig.folder)
    begin = time.monotonic()
    for change in changes[1:]:
        time.sleep(max(0.0, begin + change.at - time.monotonic()))
        say(f"{change.at:6.1f} s: room for {change.nodes} nodes")
        rig.room(change.nodes - rig.least)
    time.sleep(max(0.0, begin + seconds - time.monotonic()))
    end = time.monotonic()
    ends = steps.read(rig.logs)
    known = {world: rate for world, rate in steps.rates(ends).items() if rig.least <= world <= rig.most}
    after = _resizes(rig.folder)
    return Played(
        steps.completed(ends, begin, end),
        complete(known, range(rig.least, rig.most + 1)),
        after[0] - before[0],
        after[1] - before[1],
        steps.audit(steps.ledger(rig.logs), SAMPLES, BATCH),
    )


def _resizes(folder: RunFolder) -> tuple[int, int]:
    """Planned ones, and recoveries."""
    recovered = [bool(e.detail.get("recovered")) for e in folder.events() if e.event == "resize"]
    return recovered.count(False), recovered.count(True)


def rows(played: Played, changes: Sequence[Change], seconds: float) -> list[dict[str, object]]:
    """A line for each way to train."""
    best = oracle(changes, seconds, played.rates)
    ways = {
        "oracle, free resizes": best,
        "hpctools": float(played.done),
        "requeue (on paper)": requeued(changes, seconds, played.rates),
        f"{LEAST} nodes only (on paper)": seconds * played.rates[LEAST],
    }
    return [
        {"training": name, "steps": round(count), "of the oracle": count / best}
        for name, count in ways.items()
    ]


def goals(played: Played, changes: Sequence[Change], seconds: float) -> list[Goal]:
    """What was promised."""
    share = played.done / oracle(changes, seconds, played.rates)
    name = f"goodput of the oracle's, {seconds / 60:g} minutes, {len(changes) - 1} changes"
    return [
        Goal(name, share, "", ">=", SHARE),
        Goal("samples lost", played.audit.lost, "samples", "<=", 0),
        Goal("samples doubled", played.audit.doubled, "samples", "<=", 0),
        Goal("steps repeated", len(played.audit.repeated), "steps", "<=", played.recoveries),
    ]


def start(rig: str) -> AbstractContextManager[rigs.Rig]:
    """A run on the cluster, or of bare processes."""
    chosen = rigs.cluster if rig == "cluster" else rigs.local
    return chosen(LEAST, MOST, ENVIRON)


def main() -> int:
    """Measure, report, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_MINUTES:g} minutes of it")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is not met")
    parser.add_argument(
        "--rig", choices=("cluster", "local"), default="cluster", help="real Slurm, or processes"
    )
    parser.add_argument("--minutes", type=float, help=f"how long (default: {MINUTES:g})")
    parser.add_argument("--seed", type=int, default=5, help="of the trace")
    given = parser.parse_args()
    rigs.end_well()
    seconds = 60 * (given.minutes or (QUICK_MINUTES if given.quick else MINUTES))
    mean = MEAN_SECONDS if seconds >= 60 * MINUTES else QUICK_MEAN_SECONDS
    changes = trace(given.seed, seconds, LEAST, MOST, mean)
    found: list[Played] = []
    with until_ctrl_c() as course, start(given.rig) as rig:
        found.append(play(rig, changes, seconds))
    if not found:  # half a trace has no goodput
        return report("goodput", [], [], check=given.check, complete=course.complete)
    (played,) = found
    rounded = {size: round(rate, 2) for size, rate in sorted(played.rates.items())}
    say(f"steps per second by nodes: {rounded}")
    say(f"{played.resizes} resizes, {played.recoveries} recoveries; {played.audit}")
    table = rows(played, changes, seconds)
    return report("goodput", table, goals(played, changes, seconds), check=given.check)


if __name__ == "__main__":
    sys.exit(main())

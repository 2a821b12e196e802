"""What faults cost a training: how long it stands still, what it does again, and what throughput is left.

    ./dev bench faults [--quick] [--check] [--rig cluster|local] [--minutes M] [--only PART] [--no-preload]

Three parts. `each`: kill -9 of a worker, an agent, a slurmd, the node that coordinates (slurmd, step daemons
and all processes at once), and of all nodes of the baseline, and SIGSTOP of a worker and an agent; after each
the run comes back to its full size before the next. `storm`: 62 faults of all these kinds in 30 minutes,
mostly of workers and agents; fewer minutes have as many fewer; dead nodes come back after 8 s. Before it,
after every ten faults or so, and at its end is half a calm minute to compare with, which is not of the 30.
`around`: slurmctld stopped while a resize is on its way, and a shared file system that stands still.
The stop is the longest time without the end of a step after a fault, beyond a normal step. Of every sample is
known by which steps it was fed and committed, and when: each fault may repeat one step, the one in flight.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from bench import rigs, steps, storm, strikes
from bench.course import say, until_ctrl_c
from bench.report import Goal, report
from hpctools.sandbox import process

LEAST, MOST = 2, 8
ENVIRON = {"BENCH_WIDTH": "64", "BENCH_SAMPLE_SECONDS": "0.04"}
SAMPLES, BATCH = 24 * 400, 24  # of an epoch and of a step; as in elastic_programs/model.py
KEPT = 0.95
QUICK_MINUTES = 3.0
CALM_SECONDS = 15.0
WATCH_SECONDS = 12.0
FROZEN_SECONDS = 8.0
LIMITS = {
    "worker": 3.0,
    "agent": 3.0,
    "slurmd": 3.0,
    "frozen worker": 4.0,  # it is noticed within 3 s, and then recovered from
    "frozen agent": 4.0,
    "coordinator's node": 10.0,
    "baseline": 10.0,
}
PARTS = ("each", "storm", "around")


@dataclass(frozen=True)
class Fault:
    """One fault and what followed.

    Attributes:
        stop: seconds for which no step ended, beyond a normal one.
        whole: seconds until the run had its full size again; None when it did not come back.
    """

    kind: str
    stop: float
    whole: float | None


@dataclass(frozen=True)
class Books:
    """What became of a run's samples.

    Attributes:
        part: of the bench.
        repeated: of each fault, its kind and how many steps were begun again because of it.
    """

    part: str
    audit: steps.Audit
    repeated: tuple[tuple[str, int], ...]

    @property
    def worst(self) -> tuple[str, int]:
        """The fault that had the most steps begun again."""
        return max(self.repeated, key=lambda fault: fault[1])


@dataclass
class Found:
    """What was measured.

    Attributes:
        storm: what it left; None when there was none.
        around: seconds of the stop, by what stood still.
        books: of each run.
        broken_off: parts that did not come to their end, and why.
    """

    faults: list[Fault] = field(default_factory=list)
    storm: storm.Left | None = None
    around: dict[str, float] = field(default_factory=dict)
    books: list[Books] = field(default_factory=list)
    broken_off: list[str] = field(default_factory=list)


def each(rig: rigs.Rig, kinds: Sequence[str], found: Found) -> None:
    """One fault after the other, of each kind."""
    draw, begun = random.Random(2), []  # noqa: S311
    for kind in kinds:
        rigs.await_whole(rig)
        time.sleep(CALM_SECONDS / 3)
        begin = time.monotonic()
        mend = strikes.KINDS[kind](rig, draw)
        begun.append((kind, begin))
        struck = time.monotonic()
        time.sleep(WATCH_SECONDS)
        ends = steps.read(rig.logs)
        normal = steps.normal_step(ends, begin - CALM_SECONDS / 3, begin)
        stop = max(0.0, steps.longest_gap(ends, begin, struck + WATCH_SECONDS) - normal)
        mend()
        fault = Fault(kind, stop, _seconds_until_whole(rig, begin))
        found.faults.append(fault)
        say(f"{kind}: {stop:.2f} s without a step, whole again after {fault.whole} s")
    found.books.append(books_of(rig, "each", begun))


def weather(rig: rigs.Rig, shares: Mapping[str, int], minutes: float, found: Found) -> None:
    """A storm, and what it left."""
    had = storm.weather(rig, shares, minutes)
    left = found.storm = storm.left(steps.read(rig.logs), had, minutes, rig.most)
    say("steps per second in the calm times: " + ", ".join(f"{rate:.2f}" for rate in left.calm))
    found.books.append(books_of(rig, "storm", had.faults))


def books_of(rig: rigs.Rig, part: str, begun: Sequence[tuple[str, float]]) -> Books:
    """A run's samples; faults by kind and when they began."""
    lines = list(steps.ledger(rig.logs))
    again = steps.repeats(lines, [moment for _, moment in begun])
    repeated = tuple((kind, len(each)) for (kind, _), each in zip(begun, again, strict=True))
    return Books(part, steps.audit(lines, SAMPLES, BATCH), repeated)


def around(rig: rigs.Cluster, found: Found) -> None:
    """slurmctld stands still while the run grows: what Slurm has started joins all the same."""
    rig.room(0)
    rigs.await_size(rig.logs, rig.least, time.monotonic())
    begin = time.monotonic()
    rig.room(rig.most - rig.least)
    rigs.await_(lambda: _agents(rig) == rig.most, "replicas did not start")
    controller = rig.daemon("slurmctld")
    process.send(controller, signal.SIGSTOP)
    try:
        rigs.await_size(rig.logs, rig.most, begin)
        time.sleep(3)
    finally:
        process.send(controller, signal.SIGCONT)
    ends = steps.read(rig.logs)
    last = ends[-1]["at"]
    normal = 1 / steps.rates(ends)[rig.least]
    found.around["slurmctld stopped in a resize"] = max(0.0, steps.longest_gap(ends, begin, last) - normal)
    found.books.append(books_of(rig, "around slurmctld", [("slurmctld", begin)]))


def slow_storage(found: Found) -> None:
    """The file system of the run's folder stands still; only who writes to it may wait."""
    with rigs.disk() as mount, rigs.local(1, MOST, ENVIRON, mount) as rig:
        rigs.await_whole(rig)
        time.sleep(CALM_SECONDS / 3)
        begin = time.monotonic()
        with rigs.frozen(mount):
            time.sleep(FROZEN_SECONDS)
        thawed = time.monotonic()
        time.sleep(WATCH_SECONDS)
        ends = steps.read(rig.logs)
        normal = steps.normal_step(ends, begin - CALM_SECONDS / 3, begin)
        stop = max(0.0, steps.longest_gap(ends, begin, thawed + WATCH_SECONDS) - normal)
        found.around[f"run folder's storage frozen {FROZEN_SECONDS:g} s"] = stop
        rigs.await_whole(rig)
        found.books.append(books_of(rig, "around storage", [("storage", begin)]))


def _agents(rig: rigs.Rig) -> int:
    return sum(each.kind == "agent" for each in rig.processes())


def _seconds_until_whole(rig: rigs.Rig, begin: float) -> float | None:
    """From a fault until a step of all nodes after it."""
    tail = steps.Tail(rig.logs)

    def again() -> float | None:
        """The first step of full size after the last of another one."""
        after = [step for step in tail.look() if step["at"] > begin]
        small = max((step["at"] for step in after if step["world"] < rig.most), default=begin)
        whole = [step["at"] for step in after if step["world"] == rig.most and step["at"] > small]
        return whole[0] - begin if len(whole) > steps.NORMAL_STEPS else None

    try:
        rigs.await_(lambda: again() is not None, "full size")
    except TimeoutError:
        return None
    return again()


def rows(found: Found) -> Iterator[dict[str, object]]:
    """A line for each kind of fault."""
    for kind in dict.fromkeys(fault.kind for fault in found.faults):
        stops = [fault.stop for fault in found.faults if fault.kind == kind]
        whole = [fault.whole for fault in found.faults if fault.kind == kind and fault.whole is not None]
        back = statistics.median(whole) if whole else float("nan")
        yield _row(named(kind), len(stops), statistics.median(stops), max(stops), back)
    for what, stop in found.around.items():
        yield _row(what, 1, stop, stop, float("nan"))
    if (left := found.storm) is not None:
        counts = ", ".join(f"{count} {kind}" for kind, count in Counter(left.kinds).most_common())
        yield _share(f"storm: {counts}", len(left.kinds), left.kept)
        yield _share("lost in the storm while no step ended", len(left.kinds), left.loss.standing)
        yield _share("lost in the storm with fewer workers", len(left.kinds), left.loss.smaller)
    for books in found.books:
        what = f"steps repeated by one fault, {books.part}: at most {books.worst[1]} ({books.worst[0]})"
        yield _row(what, len(books.repeated), float("nan"), float("nan"), float("nan"))


def named(kind: str) -> str:
    """What is done in a fault."""
    return f"SIGSTOP of {kind.removeprefix('frozen ')}" if kind.startswith("frozen") else f"kill -9 of {kind}"


def _share(what: str, count: int, kept: float) -> dict[str, object]:
    nothing = float("nan")
    return {**_row(what, count, nothing, nothing, nothing), "kept": kept}


def _row(fault: str, count: int, median: float, most: float, whole: float) -> dict[str, object]:
    return {
        "fault": fault,
        "count": count,
        "stop p50 s": median,
        "stop max s": most,
        "whole s": whole,
        "kept": "",
    }


def goals(found: Found) -> list[Goal]:
    """What was promised."""
    promised = [Goal(f"broken off: {why}", 1, "parts", "<=", 0) for why in found.broken_off]
    for kind in dict.fromkeys(fault.kind for fault in found.faults):
        longest = max(fault.stop for fault in found.faults if fault.kind == kind)
        promised.append(Goal(f"training again after {named(kind)}", longest, "s", "<=", LIMITS[kind]))
        lame = sum(fault.kind == kind and fault.whole is None for fault in found.faults)
        promised.append(
            Goal(f"runs that did not come back to their size after {kind}", lame, "runs", "<=", 0)
        )
    for what, stop in found.around.items():
        promised.append(Goal(f"stop: {what}", stop, "s", "<=", LIMITS["worker"]))
    if (left := found.storm) is not None:
        name = f"throughput kept in {len(left.kinds)} faults in {left.minutes:g} minutes"
        promised.append(Goal(name, left.kept, "", ">=", KEPT))
    return promised + [goal for books in found.books for goal in _book_goals(books)]


def _book_goals(books: Books) -> Iterator[Goal]:
    yield Goal(f"samples lost, {books.part}", books.audit.lost, "samples", "<=", 0)
    yield Goal(f"samples doubled, {books.part}", books.audit.doubled, "samples", "<=", 0)
    kind, count = books.worst
    name = f"steps repeated by one fault, {books.part} (of {len(books.repeated)}, the worst: {kind})"
    yield Goal(name, count, "steps", "<=", 1)


def start(rig: str, *, preload: bool) -> AbstractContextManager[rigs.Rig]:
    """A run on the cluster, or of bare processes.

    Only Slurm ends a baseline that has lost one of its nodes; without it the baseline is one node.
    """
    if rig == "cluster":
        return rigs.cluster(LEAST, MOST, ENVIRON, "preload: []\n" if preload else "")
    return rigs.local(1, MOST, ENVIRON, preload=() if preload else None)


def measure(
    found: Found, rig_name: str, parts: Sequence[str], repeats: int, minutes: float, *, preload: bool
) -> None:
    """Each part on a run of its own; one that does not come to its end takes nothing from the others."""
    shares = strikes.shares_on(rig_name)
    kinds = list(shares)
    if "each" in parts:
        with _part(found, "each"), start(rig_name, preload=preload) as rig:
            each(rig, kinds * repeats, found)
    if "storm" in parts:
        with _part(found, "storm"), start(rig_name, preload=preload) as rig:
            weather(rig, shares, minutes, found)
    if "around" in parts:
        with _part(found, "storage"):
            slow_storage(found)
    if "around" in parts and rig_name == "cluster":
        with _part(found, "slurmctld"), rigs.cluster(LEAST, MOST, ENVIRON) as cluster:
            around(cluster, found)


@contextmanager
def _part(found: Found, name: str) -> Iterator[None]:
    """What was awaited in it and did not happen is told, and counts as a goal that is not met."""
    try:
        yield
    except TimeoutError as error:
        found.broken_off.append(f"{name}: {error}")
        say(f"bench: {name} was broken off: {error}")


def main() -> int:
    """Measure, report, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"each fault once, {QUICK_MINUTES:g} minutes of storm"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is not met")
    parser.add_argument(
        "--rig", choices=("cluster", "local"), default="cluster", help="real Slurm, or processes"
    )
    parser.add_argument("--minutes", type=float, help=f"of the storm (default: {storm.MINUTES:g})")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument(
        "--no-preload", action="store_true", help="workers are started one by one, not forked"
    )
    given = parser.parse_args()
    rigs.end_well()
    minutes = given.minutes or (QUICK_MINUTES if given.quick else storm.MINUTES)
    parts = (given.only,) if given.only else PARTS
    found = Found()
    with until_ctrl_c() as course:
        measure(found, given.rig, parts, 1 if given.quick else 3, minutes, preload=not given.no_preload)
    table = list(rows(found))
    return report("faults", table, goals(found), check=given.check, complete=course.complete)


if __name__ == "__main__":
    sys.exit(main())

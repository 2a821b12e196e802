"""How long a resize holds up a training, and what an urgent job waits for it.

    ./dev bench resize [--quick] [--check] [--rig cluster|local] [--without-rivals]

Four to eight nodes and back, a model of 5 million parameters with AdamW (60 MB of state). The pause is the
time from the end of the last step before to the end of the first step after, minus a normal step (the median
of the next ones); `no resize` is the same of steps at which nothing changed; phases are those that the run
itself reports. On the cluster, which has real Slurm
daemons, nodes are taken by urgent jobs that preempt; what they wait is compared, percentile with percentile,
with what as many of them wait for jobs that have nothing to do but to die, beside a training that goes on
(in exact mode). All else in exact and in fast mode. torchrun and torchft resize the same model as bare
processes of this machine, told what is going to happen, each with the shortest timeouts that work. They add
up gradients as fast mode does, so they are compared with that, as bare processes, too (`no Slurm`): on the
cluster slurmctld, slurmds, step daemons and urgent jobs want the same cores at that moment. `loading` is the
same training where two processes of each worker load its batches, and need 50 ms for each sample.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench import rigs, rivals, steps
from bench.course import say, until_ctrl_c
from bench.report import Goal, report
from bench.steps import Pause, quantile
from hpctools.elastic.folder import Event, RunFolder
from hpctools.errors import CommandError
from hpctools.sandbox.cluster import Sandbox

LEAST, MOST = 4, 8
POLICY = "elasticPolicy: {backOffLimitInSeconds: 0}\n"
"""Nodes come and go here far more often than a run would grow by itself."""
ENVIRON = {"BENCH_WIDTH": "1118"}
MODES = ("exact", "fast")
SHRINK_SECONDS, GROW_SECONDS, WAIT_SECONDS, TIMES = 0.3, 0.5, 1.5, 10.0
RESOLUTION_SECONDS = 0.01
"""A shorter pause than this is lost in the differences between steps."""
TAKEN = (2, 4, 1, 3)
"""Nodes that urgent jobs take, in turn."""
KINDS = {"shrink": False, "grow": True}
CANNOT = {("torchft", "grow")}
"""What a rival cannot do, so that no goal is about it: torchft's grow has no pause, because the newcomer's
first samples are not trained at all. It is in the table."""
ALIKE = "fast"
"""Our mode that adds up gradients as the rivals do."""
ALONE = f"hpctools, {ALIKE}, no Slurm"
LOADING = {"BENCH_LOAD_SECONDS": "0.05", "BENCH_LOADERS": "2"}
FED = f"{ALIKE}, no Slurm, loading"
OVER = {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "PREEMPTED", "NODE_FAIL"}
Start = Callable[[Path, int, dict[str, str]], AbstractContextManager[rivals.Rival]]
RIVALS: dict[str, Start] = {"torchrun": rivals.torchrun, "torchft": rivals.torchft}


@dataclass
class Ours:
    """What was measured of hpctools.elastic.

    Attributes:
        waits: of urgent jobs, seconds from sbatch to their first line.
        control: the same when all that is preempted dies at once; Slurm's own.
        grace: the longest time that a replica of each needed from its SIGTERM to its end, seconds.
        evicted: replicas that went, beside those whose nodes were needed; also some time later.
        gone: replicas that were preempted so far.
        phases: seconds by phase and kind of resize.
        unchanged: what steps took longer than the next ones at which nothing changed, seconds.
        late: steps after the one that the coordinator had named, of each resize.
    """

    pauses: list[Pause] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    control: list[float] = field(default_factory=list)
    grace: list[float] = field(default_factory=list)
    evicted: int = 0
    gone: int = 0
    phases: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    unchanged: list[float] = field(default_factory=list)
    late: list[int] = field(default_factory=list)


def on_cluster(cycles: int, found: Mapping[str, Ours]) -> None:
    """Urgent jobs take nodes and give them back, on real Slurm; a run in each of MODES."""
    taken = [TAKEN[cycle % len(TAKEN)] for cycle in range(cycles)]
    with rigs.cluster(LEAST, MOST, _environ(MODES[0]), POLICY) as first:
        _urgent_jobs(first, taken, found[MODES[0]])
        for mode in MODES[1:]:
            rig = rigs.Cluster(first.sandbox, LEAST, MOST, _environ(mode), POLICY)
            _urgent_jobs(rig, taken, found[mode])
        control = list(_control(first.sandbox, taken))
    for each in found.values():
        each.control = control


def _environ(mode: str) -> dict[str, str]:
    return {**ENVIRON, "BENCH_MODE": mode}


def _urgent_jobs(rig: rigs.Cluster, taken: Sequence[int], found: Ours) -> None:
    """One after the other, beside one run, which they end with."""
    rigs.await_size(rig.logs, MOST, time.monotonic())
    begin = time.monotonic()
    for nodes in taken:
        _one_urgent_job(rig, nodes, found)
    time.sleep(2)
    _collect(rig.logs, rig.folder, begin, found)
    found.evicted += len(_preempted(rig.folder)[found.gone :])
    _end_all(rig)


def _one_urgent_job(rig: rigs.Cluster, nodes: int, found: Ours) -> None:
    asked = time.monotonic()
    job, wait = rig.wait_of_urgent(nodes)
    rigs.await_size(rig.logs, MOST - nodes, asked)
    found.waits.append(wait)
    gone = _preempted(rig.folder)[found.gone :]
    found.gone += len(gone)
    found.grace.append(max(event.detail["seconds"] for event in gone))
    evicted = max(0, len(gone) - nodes)
    found.evicted += evicted
    rig.cancel(job)
    rigs.await_size(rig.logs, MOST, time.monotonic())
    say(f"{nodes} nodes for an urgent job after {wait:.2f} s; {evicted} more evicted; back again")


def _preempted(folder: RunFolder) -> list[Event]:
    return [e for e in folder.events() if e.event == "left" and e.detail.get("reason") == "preempted"]


def _control(sandbox: Sandbox, taken: Sequence[int]) -> Iterator[float]:
    """What the same urgent jobs wait when jobs that end at their SIGTERM have the nodes.

    The training goes on meanwhile as it does for ours, on the nodes that nobody takes: slurmctld, the step
    daemons and the urgent job's first line share the cores with as much.
    """
    rig = rigs.Cluster(sandbox, LEAST, LEAST, ENVIRON)
    rigs.await_size(rig.logs, LEAST, time.monotonic())
    for nodes in taken:
        plain = [_plain_job(sandbox) for _ in range(MOST - LEAST)]
        rigs.await_(partial(_are, rig, plain, {"RUNNING"}), "the control's jobs")
        time.sleep(2)  # their steps, too
        job, wait = rig.wait_of_urgent(nodes)
        yield wait
        rig.cancel(job)
        sandbox.inside("scancel", f"--user={rigs.RESEARCHER}", "--qos=elastic")
        rigs.await_(partial(_are, rig, [job, *plain], OVER), "the control's end")
        say(f"{nodes} nodes for an urgent job after {wait:.2f} s, from jobs that die")
    _end_all(rig)


def _plain_job(sandbox: Sandbox) -> int:
    """A job of one node, of the replicas' QoS, that ends at its SIGTERM."""
    words = ["sbatch", "--parsable", f"--partition={rigs.PARTITION}", "--qos=elastic", "--nodes=1"]
    words += ["--exclusive", "--time=120", "--output=/dev/null", "--wrap"]
    words += ["srun --ntasks-per-node=1 sleep 100000"]
    return int(sandbox.inside(*words, user=rigs.RESEARCHER).stdout.split(";")[0])


def _are(rig: rigs.Cluster, jobs: Sequence[int], states: Collection[str]) -> bool:
    known = rig.states()
    return all(known.get(job, "COMPLETED") in states for job in jobs)


def _end_all(rig: rigs.Cluster) -> None:
    rig.sandbox.inside("scancel", f"--user={rigs.RESEARCHER}")
    rigs.await_(lambda: set(rig.states().values()) <= OVER, "the run's jobs did not end")


def on_machine(resizes: int, environ: dict[str, str], found: Ours) -> None:
    """The same resizes without Slurm."""
    with rigs.local(LEAST, MOST, environ, policy={"back_off_limit_s": 0.0}) as rig:
        rigs.await_size(rig.logs, LEAST, time.monotonic())
        begin = time.monotonic()
        for size in sizes(resizes):
            asked = time.monotonic()
            rig.room(size - LEAST)
            rigs.await_size(rig.logs, size, asked)
            say(f"no Slurm: {size} workers after {time.monotonic() - asked:.1f} s")
        time.sleep(2)
        _collect(rig.logs, rig.folder, begin, found)


def _collect(logs: Path, folder: RunFolder, begin: float, found: Ours) -> None:
    ends = steps.since(steps.read(logs), begin)
    found.pauses, found.unchanged = list(steps.pauses(ends)), list(steps.unchanged(ends))
    for event in folder.events():
        detail = event.detail
        if event.event == "resize" and not detail.get("recovered"):
            kind = "grow" if detail["to"] > detail["from"] else "shrink"
            found.late += [detail["late"]] if "late" in detail else []
            for phase, seconds in detail.get("phases", {}).items():
                found.phases.setdefault((kind, phase), []).append(seconds)
    say(f"{found.late.count(0)} of {len(found.late)} resizes after the step that was named: {found.late}")


def of_rival(name: str, resizes: int) -> list[Pause]:
    """A rival's pauses; empty, with its own words on standard error, when it cannot do it here."""
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as base:
        try:
            with RIVALS[name](Path(base), MOST, ENVIRON) as training:
                return _resized(training, resizes)
        except (CommandError, TimeoutError) as error:
            say(f"{name} cannot do it here: {error}")
            for log in Path(base).glob("*/*.log"):
                say(log.read_text(errors="replace")[-1500:])
            return []


def _resized(training: rivals.Rival, resizes: int) -> list[Pause]:
    training.resize(LEAST)
    rigs.await_size(training.logs, LEAST, time.monotonic())
    begin = time.monotonic()
    for size in sizes(resizes):
        asked = time.monotonic()
        training.resize(size)
        rigs.await_size(training.logs, size, asked)
        say(f"{training.logs.name}: {size} workers after {time.monotonic() - asked:.1f} s")
    return list(steps.pauses(steps.since(steps.read(training.logs), begin)))


def sizes(resizes: int) -> list[int]:
    """As many resizes, grows and shrinks in turn, by all differences that TAKEN has."""
    places = range(1, resizes + 1)
    return [MOST if place % 2 else MOST - TAKEN[place // 2 % len(TAKEN)] for place in places]


def own_table(mode: str, ours: Ours) -> Iterator[dict[str, object]]:
    """The lines of a run of ours."""
    who = f"hpctools, {mode}"
    yield from table({who: ours.pauses})
    for (kind, phase), seconds in ours.phases.items():
        yield row(who, f"{kind}: {phase}", seconds)
    waits = {"urgent job waits": ours.waits, "of it grace": ours.grace, "Slurm's own": ours.control}
    for what, seconds in {"no resize": ours.unchanged, **waits}.items():
        if seconds:
            yield row(who, what, seconds)


def table(measured: dict[str, list[Pause]]) -> Iterator[dict[str, object]]:
    """A line for each training and kind of resize."""
    for who, pauses in measured.items():
        for kind, grows in KINDS.items():
            seconds = [pause.seconds for pause in pauses if pause.grows == grows]
            if seconds:
                yield row(who, kind, seconds)


def row(who: str, what: str, seconds: Sequence[float]) -> dict[str, object]:
    """A line of the table."""
    return {
        "who": who,
        "what": what,
        "count": len(seconds),
        "min s": min(seconds),
        "p50 s": quantile(seconds, 0.5),
        "p95 s": quantile(seconds, 0.95),
        "max s": max(seconds),
    }


def compared(own: Sequence[Pause], others: dict[str, list[Pause]], whose: str) -> Iterator[dict[str, object]]:
    """A line for each rival and kind of resize: how many times longer than ours its shortest one is."""
    for name, kind, theirs, seconds in _pairs(own, others):
        median, late = times(theirs, seconds), times(theirs, seconds, 0.95)
        yield {
            "who": f"{name}'s min over {whose}",
            "what": kind,
            "count": len(theirs),
            "min s": "",
            "p50 s": f"{median:.1f} x",
            "p95 s": f"{late:.1f} x",
            "max s": "",
        }


def _pairs(
    own: Sequence[Pause], others: dict[str, list[Pause]]
) -> Iterator[tuple[str, str, list[float], list[float]]]:
    """Rival, kind of resize, its seconds and ours, where both have some."""
    for kind, grows in KINDS.items():
        seconds = [pause.seconds for pause in own if pause.grows == grows]
        for name, pauses in others.items():
            theirs = [pause.seconds for pause in pauses if pause.grows == grows]
            if theirs and seconds:
                yield name, kind, theirs, seconds


def goals(ours: Mapping[str, Ours], others: dict[str, list[Pause]], alike: Sequence[Pause]) -> list[Goal]:
    """What was promised; a rival that was asked for and did not run is a promise that was not kept.

    Args:
        ours: by mode.
        alike: our own pauses as bare processes and in fast mode, as the others' are.
    """
    found = [goal for mode, each in ours.items() for goal in _own_goals(mode, each)]
    found += [
        Goal(f"resizes of {name} to compare with", 0, "resizes", ">=", 1)
        for name, pauses in others.items()
        if not pauses
    ]
    for name, kind, theirs, seconds in _pairs(alike, others):
        if (name, kind) not in CANNOT:
            what = f"{kind} {name}'s shortest over our p50"
            found.append(Goal(what, times(theirs, seconds), "x", ">=", TIMES))
    return found


def _own_goals(mode: str, ours: Ours) -> Iterator[Goal]:
    limits = {"shrink": SHRINK_SECONDS, "grow": GROW_SECONDS}
    for kind, grows in KINDS.items():
        if own := [pause.seconds for pause in ours.pauses if pause.grows == grows]:
            yield Goal(f"{mode}: {kind} pause p95", quantile(own, 0.95), "s", "<=", limits[kind])
    if ours.waits and ours.control:
        beyond = quantile(ours.waits, 0.95) - quantile(ours.control, 0.95)
        yield Goal(f"{mode}: urgent job's wait p95 beyond Slurm's own p95", beyond, "s", "<=", WAIT_SECONDS)
        yield Goal(f"{mode}: collateral nodes evicted", ours.evicted, "nodes", "<=", 0)


def times(theirs: Sequence[float], own: Sequence[float], share: float = 0.5) -> float:
    """How many times longer than ours their shortest pause is; of ours, a quantile."""
    return min(theirs) / max(quantile(own, share), RESOLUTION_SECONDS)


def main() -> int:
    """Measure, report, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer resizes")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is not met")
    parser.add_argument(
        "--rig", choices=("cluster", "local"), default="cluster", help="real Slurm, or processes"
    )
    parser.add_argument("--without-rivals", action="store_true", help="leave torchrun and torchft out")
    given = parser.parse_args()
    rigs.end_well()
    cycles = 4 if given.quick else 16
    counts = {"torchrun": 4 if given.quick else 8, "torchft": 4 if given.quick else 16}
    ours, alone, fed = {mode: Ours() for mode in MODES}, Ours(), Ours()
    others: dict[str, list[Pause]] = {}
    with until_ctrl_c() as course:
        if given.rig == "cluster":
            on_cluster(cycles, ours)
        else:
            on_machine(2 * cycles, _environ(MODES[0]), ours[MODES[0]])
        on_machine(counts["torchft"] if given.rig == "cluster" else 2 * cycles, _environ(ALIKE), alone)
        on_machine(counts["torchft"], {**_environ(ALIKE), **LOADING}, fed)
        for name in () if given.without_rivals else counts:
            others[name] = of_rival(name, counts[name])
    rows = [line for mode, each in ours.items() for line in own_table(mode, each)]
    rows += table({ALONE: alone.pauses, f"hpctools, {FED}": fed.pauses, **others})
    rows += compared(alone.pauses, others, f"ours, {ALIKE}, no Slurm")
    found = [*goals(ours, others, alone.pauses), *_own_goals(FED, fed)]
    return report("resize", rows, found, check=given.check, complete=course.complete)


if __name__ == "__main__":
    sys.exit(main())

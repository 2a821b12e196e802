"""What can be done to a run on a rig, and which of it a storm has.

Each strike takes its victim from all that there are, and returns what undoes what does not mend by itself.
"""

from __future__ import annotations

import math
import random
import signal
from collections.abc import Callable, Mapping

from bench import rigs, run_processes
from hpctools.sandbox import process

Mend = Callable[[], None]
Strike = Callable[[rigs.Rig, random.Random], Mend]
FIND_SECONDS = 30.0


def deal(count: int, shares: Mapping[str, int], draw: random.Random) -> list[str]:
    """So many kinds, each as often as its share says (largest remainders), in random order."""
    exact = {kind: count * share / sum(shares.values()) for kind, share in shares.items()}
    dealt = {kind: math.floor(number) for kind, number in exact.items()}
    rest = sorted(shares, key=lambda kind: dealt[kind] - exact[kind])
    for kind in rest[: count - sum(dealt.values())]:
        dealt[kind] += 1
    kinds = [kind for kind, number in dealt.items() for _ in range(number)]
    draw.shuffle(kinds)
    return kinds


def kill_worker(rig: rigs.Rig, draw: random.Random) -> Mend:
    """Any worker: its agent starts it again."""
    run_processes.kill(_chosen(rig, draw, lambda each: each.kind == "worker").pid)
    return _nothing


def kill_agent(rig: rigs.Rig, draw: random.Random) -> Mend:
    """Any agent but the coordinator's: its job starts it again."""
    run_processes.kill(_chosen(rig, draw, _is_plain_agent(rig)).pid)
    return _nothing


def freeze_worker(rig: rigs.Rig, draw: random.Random) -> Mend:
    """SIGSTOP: its agent ends it, once it is missed."""
    return _freeze(_chosen(rig, draw, lambda each: each.kind == "worker"))


def freeze_agent(rig: rigs.Rig, draw: random.Random) -> Mend:
    """SIGSTOP of any agent but the coordinator's; it wakes up when it is mended."""
    return _freeze(_chosen(rig, draw, _is_plain_agent(rig)))


def kill_slurmd(rig: rigs.Rig, draw: random.Random) -> Mend:
    """That of a replica's node: its job goes on under its step's daemon."""
    assert isinstance(rig, rigs.Cluster)
    node = _chosen(rig, draw, lambda each: each.kind == "agent" and not each.baseline).node
    process.send(rig.daemon(f"slurmd-{node}"), signal.SIGKILL)
    return rig.heal


def kill_coordinator(rig: rigs.Rig, draw: random.Random) -> Mend:
    """The node whose agent is the coordinator dies as a whole."""
    chosen = _chosen(rig, draw, lambda each: each.kind == "agent" and _coordinates(rig, each))
    if isinstance(rig, rigs.Cluster):
        rig.kill_node(chosen.node)
        return rig.heal
    if isinstance(rig, rigs.Local) and chosen.baseline:
        rig.lose_baseline()
    else:
        run_processes.kill(chosen.pid)
    return _nothing


def kill_baseline(rig: rigs.Rig, draw: random.Random) -> Mend:
    """All nodes of the baseline die at once."""
    _chosen(rig, draw, lambda each: each.baseline)
    if isinstance(rig, rigs.Local):
        rig.lose_baseline()
        return _nothing
    assert isinstance(rig, rigs.Cluster)
    for node in {each.node for each in rig.processes() if each.baseline}:
        rig.kill_node(node)
    return rig.heal


KINDS: dict[str, Strike] = {
    "worker": kill_worker,
    "agent": kill_agent,
    "slurmd": kill_slurmd,
    "frozen worker": freeze_worker,
    "frozen agent": freeze_agent,
    "coordinator's node": kill_coordinator,
    "baseline": kill_baseline,
}
SHARES = {
    "worker": 20,
    "agent": 18,
    "slurmd": 5,
    "frozen worker": 6,
    "frozen agent": 5,
    "coordinator's node": 4,
    "baseline": 4,
}
"""How many of a storm's 62 faults are of each kind."""
ON_CLUSTER_ONLY = ("slurmd",)


def shares_on(rig_name: str) -> dict[str, int]:
    """Those that there are on a rig: `cluster` or `local`."""
    return {kind: n for kind, n in SHARES.items() if rig_name == "cluster" or kind not in ON_CLUSTER_ONLY}


def _chosen(
    rig: rigs.Rig, draw: random.Random, fits: Callable[[run_processes.Proc], bool]
) -> run_processes.Proc:
    """A process of the run that fits; waits for one, since faults may come in a row."""
    found: list[run_processes.Proc] = []

    def look() -> bool:
        found[:] = [each for each in rig.processes() if fits(each)]
        return bool(found)

    rigs.await_(look, "nobody to strike came", FIND_SECONDS)
    return draw.choice(sorted(found, key=lambda each: (each.node, each.kind, each.pid)))


def _is_plain_agent(rig: rigs.Rig) -> Callable[[run_processes.Proc], bool]:
    """Without Slurm nobody starts a baseline's only agent again: to end it is to lose the baseline."""

    def fits(each: run_processes.Proc) -> bool:
        kept = each.baseline and isinstance(rig, rigs.Local)
        return each.kind == "agent" and not kept and not _coordinates(rig, each)

    return fits


def _coordinates(rig: rigs.Rig, each: run_processes.Proc) -> bool:
    """Whether an agent listens where the coordinator does."""
    address = rig.folder.coordinator()
    try:
        return address is not None and address.port in run_processes.listening(each.pid)
    except OSError:
        return False  # it has just ended


def _freeze(victim: run_processes.Proc) -> Mend:
    identity = process.identify(victim.pid)
    if identity is None:
        return _nothing
    process.send(identity, signal.SIGSTOP)
    return lambda: _thaw(identity)


def _thaw(identity: process.Identity) -> None:
    process.send(identity, signal.SIGCONT)


def _nothing() -> None:
    """It mends by itself."""

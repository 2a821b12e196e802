"""What jobs take of nodes, which may be more than they ask for: pure.

A job that gets nodes for itself alone gets all CPUs and generic resources of them, any other one whole cores.
Of memory it gets what it asks for: of each node, with each GPU, or with each CPU, of which those count not
that its threads leave alone. Limits count what it gets (tried on 22.05.8, 24.11.5 and 26.05.5,
docs/decisions/0079).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from hpctools.conf.plan import keys
from hpctools.conf.plan.capacity import common_threads, fewest_threads, fitting, least
from hpctools.conf.plan.demand import Demand, Tres
from hpctools.conf.plan.meaning import Meaning, Raw
from hpctools.conf.plan.partition_nodes import nodes_of
from hpctools.conf.plan.partition_terms import Pair, pair_of, under
from hpctools.conf.plan.sides import Sides
from hpctools.slurm.types import Job
from hpctools.slurm.versions import Release, shows_nodes_of_partition


class _Share(NamedTuple):
    """What a job gets of each node at least: all that is there (`node`), or else cores of some threads."""

    node: Tres
    threads: int


def taken(sides: Sides) -> tuple[Mapping[int, Demand], Mapping[int, Demand]]:
    """Return what jobs take now, and what they would take then."""
    now = sides.now or sides.wanted
    work = partial(demands_in, jobs=sides.jobs, demands=sides.demands, now=now, release=sides.release)
    return (
        sides.once(("taken", "now"), lambda: work(now)),
        sides.once(("taken", "then"), lambda: work(sides.wanted)),
    )


def demands_in(
    meaning: Meaning,
    *,
    jobs: Iterable[Job],
    demands: Mapping[int, Demand],
    now: Meaning,
    release: Release,
) -> dict[int, Demand]:
    """Return what jobs take under a configuration; of those that run what they hold is known.

    A job takes at least as much as the smallest nodes on which it fits make it take.

    Args:
        meaning: the configuration.
        jobs: the jobs there are.
        demands: what they ask for as squeue tells it.
        now: the configuration under which it tells that.
        release: of Slurm.
    """
    found = dict(demands)
    known: dict[object, _Share] = {}  # many jobs ask for the same
    terms: dict[str, Pair | None] = {}
    common = common_threads(meaning)
    for job in jobs:
        demand = demands.get(job.id)
        if demand is None or job.state != "PENDING":
            continue
        pair = pair_of(job.partition.split(","), now, meaning, terms)
        demand = under(demand, job, pair) if pair else demand
        place = job.partition, demand.whole, tuple(demand.per_node.items())
        if place not in known:
            known[place] = _share(meaning, job.partition.split(","), demand, common)
        found[job.id] = _taken(demand, known[place], _doubt(job, demand, now, meaning, release))
    return found


def _doubt(job: Job, demand: Demand, now: Meaning, then: Meaning, release: Release) -> str:
    """A clause where squeue shows whole nodes, and only the partition, which does not give them then, may."""
    if not (demand.whole and shows_nodes_of_partition(release)):
        return ""
    names = job.partition.split(",")
    given, kept = (_gives_any(meaning, names) for meaning in (now, then))
    return "if it asks for whole nodes itself" if given and not kept else ""


def _gives_any(meaning: Meaning, names: Iterable[str]) -> bool:
    return any(gives_nodes(meaning.partitions.get(name, {})) for name in names)


def _share(meaning: Meaning, partitions: list[str], demand: Demand, common: int | None) -> _Share:
    """What a job gets of a node; where all cores are alike (`common`) only whole nodes are looked at."""
    there = [meaning.partitions[name] for name in partitions if name in meaning.partitions]
    alone = demand.whole or (there and all(gives_nodes(raw) for raw in there))
    cores = bool(there) and all(_gives_cores(meaning, raw) for raw in there)
    if not alone and (not cores or common):
        return _Share({}, common if cores and common else 1)
    shapes = fitting(meaning, [nodes_of(meaning, raw) for raw in there], demand)
    return _Share(least(shapes) if alone else {}, fewest_threads(shapes) if cores else 1)


def gives_nodes(partition: Raw) -> bool:
    """Whether jobs of a partition get whole nodes, whatever they ask for."""
    return partition.get("oversubscribe", "").upper() == "EXCLUSIVE"


def _gives_cores(meaning: Meaning, partition: Raw) -> bool:
    """Whether CPUs go by cores or sockets, as far as that is stated (slurm.conf(5), SelectTypeParameters)."""
    key = "selecttypeparameters"
    own = keys.partition(key, partition.get(key))  # slurmctld prints NONE where nothing is stated
    stated = meaning.settings.get(key)
    words = (own or (stated.value if stated else "")).lower()
    return "core" in words or "socket" in words


def _taken(demand: Demand, share: _Share, doubt: str = "") -> Demand:
    nodes, asked = demand.tres.get("node", 1), demand.tres
    used = min(demand.threads or share.threads, share.threads)
    cores = max(-(-asked.get("cpu", 0) // used), nodes)
    least = {"cpu": cores * share.threads, **{name: count * nodes for name, count in share.node.items()}}
    more = {name: count for name, count in least.items() if count > asked.get(name, 0)}
    if not more:
        return demand
    tres = {**asked, **more}
    memory = max(
        demand.per_cpu * tres["cpu"] // share.threads * used,
        demand.per_gpu * tres.get("gres/gpu", 0),
    )
    tres = tres if memory <= tres.get("mem", 0) else {**tres, "mem": memory}
    doubts = {name: doubt for name in tres if doubt and tres[name] != asked.get(name)}
    return replace(demand, tres=tres, provided={**demand.provided, **doubts})

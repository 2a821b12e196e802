"""What jobs take of nodes, which may be more than they ask for: pure.

A job that gets nodes for itself alone gets all CPUs and generic resources of them, any other one whole cores.
Of memory it gets what it asks for: of each node, with each GPU, or with each CPU, of which those count not
that its threads leave alone. Limits count what it gets (tried on 22.05.8, 24.11.5 and 26.05.5,
docs/decisions/0079).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

from hpctools.conf.plan import keys
from hpctools.conf.plan.capacity import common_threads, fewest_threads, fitting, least
from hpctools.conf.plan.demand import Demand, Tres
from hpctools.conf.plan.meaning import Meaning, Raw
from hpctools.conf.plan.partition_nodes import nodes_of
from hpctools.conf.plan.partition_terms import under
from hpctools.conf.plan.sides import Sides
from hpctools.conf.plan.terms import Terms, terms_of
from hpctools.slurm.states import WAITING
from hpctools.slurm.types import Job
from hpctools.slurm.versions import Release, shows_nodes_of_partition


class _Share(NamedTuple):
    """What a job gets of each node at least: all that is there (`node`), or else cores of some threads."""

    node: Tres
    threads: int


Taken = Mapping[tuple[int, str], Demand]
"""What jobs that wait take, by their ids and each of the partitions that they named."""


def taken(sides: Sides) -> tuple[Taken, Taken]:
    """Return what waiting jobs take now, and what they would take then."""
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
) -> Taken:
    """Return what waiting jobs take under a configuration, which may be another thing in each partition.

    A job takes at least as much as the smallest nodes on which it fits make it take.

    Args:
        meaning: the configuration.
        jobs: the jobs there are.
        demands: what they ask for as squeue tells it.
        now: the configuration under which it tells that.
        release: of Slurm.
    """
    return dict(_each(_Stage(now, meaning, release), jobs, demands))


class _Stage(NamedTuple):
    """The configuration under which squeue tells what jobs ask for, and the one that is looked at."""

    now: Meaning
    then: Meaning
    release: Release


def _each(
    stage: _Stage, jobs: Iterable[Job], demands: Mapping[int, Demand]
) -> Iterator[tuple[tuple[int, str], Demand]]:
    known: dict[object, _Share] = {}  # many jobs ask for the same
    was, will = (cache(partial(terms_of, meaning)) for meaning in (stage.now, stage.then))
    common = common_threads(stage.then)
    for job in jobs:
        shown = demands.get(job.id)
        if shown is None or job.state not in WAITING:
            continue
        names = job.partition.split(",")
        for name in names:
            demand = _under(shown, job, map(was, names), will(name))
            place = name, demand.whole, tuple(demand.per_node.items())
            if place not in known:
                known[place] = _share(stage.then, name, demand, common)
            doubt = _doubt(names, name, demand, stage)
            yield (job.id, name), _taken(demand, known[place], doubt)


def _under(shown: Demand, job: Job, was: Iterable[Terms | None], will: Terms | None) -> Demand:
    """What it asks for in one partition; nothing is known of partitions that are not there."""
    there = tuple(dict.fromkeys(terms for terms in was if terms))
    return under(shown, job, there or (will,), will) if will else shown


def _doubt(names: Iterable[str], name: str, demand: Demand, stage: _Stage) -> str:
    """A clause where squeue shows whole nodes, and only the partition, which does not give them then, may."""
    if not (demand.whole and shows_nodes_of_partition(stage.release)):
        return ""
    given = any(gives_nodes(stage.now.partitions.get(each, {})) for each in names)
    kept = gives_nodes(stage.then.partitions.get(name, {}))
    return "if it asks for whole nodes itself" if given and not kept else ""


def _share(meaning: Meaning, name: str, demand: Demand, common: int | None) -> _Share:
    """What a job gets of a node; where all cores are alike (`common`) only whole nodes are looked at."""
    raw = meaning.partitions.get(name)
    if raw is None:
        return _Share({}, 1)
    alone, cores = demand.whole or gives_nodes(raw), _gives_cores(meaning, raw)
    if not alone and (not cores or common):
        return _Share({}, common if cores and common else 1)
    shapes = fitting(meaning, [nodes_of(meaning, raw)], demand)
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

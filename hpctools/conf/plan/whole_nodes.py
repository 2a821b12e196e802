"""What jobs take that get nodes for themselves alone: pure.

Such a job gets all CPUs and generic resources of its nodes and, of memory, what it asks for (a node, or each
CPU); limits count what it gets (tried on 22.05.8, 24.11.5 and 26.05.5, docs/decisions/0079).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hpctools.conf.plan.capacity import least
from hpctools.conf.plan.demand import Demand, Tres
from hpctools.conf.plan.meaning import Meaning, Raw
from hpctools.conf.plan.partition_nodes import nodes_of
from hpctools.slurm.types import Job


def demands_in(meaning: Meaning, jobs: Iterable[Job], demands: Mapping[int, Demand]) -> dict[int, Demand]:
    """Return what jobs take under a configuration; of those that run what they hold is known.

    A job takes at least as much as the smallest nodes on which it fits have.
    """
    found = dict(demands)
    known: dict[object, Tres] = {}  # many jobs ask for the same
    for job in jobs:
        demand = demands.get(job.id)
        if demand is None or job.state != "PENDING":
            continue
        place = job.partition, demand.whole, tuple(demand.per_node.items())
        if place not in known:
            known[place] = _node_alone(meaning, job.partition.split(","), demand)
        found[job.id] = _with_nodes(demand, known[place])
    return found


def _node_alone(meaning: Meaning, partitions: list[str], demand: Demand) -> Tres:
    """What each node brings that a job has for itself; {} when it shares them."""
    there = [meaning.partitions[name] for name in partitions if name in meaning.partitions]
    alone = demand.whole or (there and all(_gives_nodes(raw) for raw in there))
    return least(meaning, [nodes_of(meaning, raw) for raw in there], demand) if alone else {}


def _gives_nodes(partition: Raw) -> bool:
    return partition.get("oversubscribe", "").upper() == "EXCLUSIVE"


def _with_nodes(demand: Demand, node: Tres) -> Demand:
    if not node:
        return demand
    number = demand.tres.get("node", 1)
    tres = {
        **demand.tres,
        **{name: max(demand.tres.get(name, 0), count * number) for name, count in node.items()},
    }
    if demand.per_cpu:
        tres["mem"] = max(tres.get("mem", 0), demand.per_cpu * tres["cpu"])
    return replace(demand, tres=tres)

"""What a job asked for when it was submitted, before partitions made it larger: pure.

squeue shows MinMemory, the CPUs of a task and what comes with a GPU as the partition made them that slurmctld
looked at last, of those that the job named; the TRES are those of the submission, with the defaults that the
first of them had (22.05.8, 24.11.5 and 26.05.5 alike, docs/decisions/0155).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpctools.conf.plan.demand import Demand
from hpctools.conf.plan.terms import Terms


def as_submitted(demand: Demand, was: Sequence[Terms]) -> Demand:
    """Return what a waiting job asks for itself, as far as that is to be seen.

    Args:
        demand: as squeue shows it.
        was: the terms now of the partitions that it named.
    """
    return _before_a_cut(_its_own_memory(_fewer_cpus(demand), was), was)


def a_default(demand: Demand, was: Sequence[Terms]) -> bool:
    """Whether a job looks as if it got the default of one partition first, and then that of another one."""
    last = {terms.per_cpu or terms.per_node for terms in was}
    return demand.memory in last and _began_by_default(demand, was)


def _began_by_default(demand: Demand, was: Sequence[Terms]) -> bool:
    return demand.tres.get("mem") in {_default(demand, terms) for terms in was}


def _default(demand: Demand, terms: Terms) -> int:
    if terms.per_cpu:
        return terms.per_cpu * demand.own_cpus
    return (terms.per_node or terms.node_memory) * demand.tres.get("node", 1)


def _fewer_cpus(demand: Demand) -> Demand:
    """No task asks for more CPUs than its job does: MaxMemPerCPU gave them."""
    own = demand.own_cpus
    if demand.task_cpus <= own and demand.node_cpus <= own:
        return demand
    return replace(demand, task_cpus=min(demand.task_cpus, own), node_cpus=min(demand.node_cpus, own))


def _its_own_memory(demand: Demand, was: Sequence[Terms]) -> Demand:
    """A partition's memory for each GPU is shown of jobs, too, that state their memory and do not get it."""
    memory, nodes = demand.tres.get("mem", 0), demand.tres.get("node", 1)
    of_gpus = demand.per_gpu * demand.tres.get("gres/gpu", 0)
    if "mem" not in demand.given or memory in (0, of_gpus) or _began_by_default(demand, was):
        return demand
    of_node = memory // nodes
    alone = of_node if demand.own_cpus == nodes else 0
    return replace(demand, memory=of_node, unclear=alone, per_gpu=0, given=demand.given - {"mem"})


def _before_a_cut(demand: Demand, was: Sequence[Terms]) -> Demand:
    """With MaxMemPerCPU a CPU with much memory becomes several, each with its part of that."""
    cpus, memory = demand.own_cpus, demand.tres.get("mem", 0)
    cut = any(terms.most_per_cpu for terms in was) and not (demand.per_cpu or demand.per_gpu)
    of_node = memory == demand.memory * demand.tres.get("node", 1)
    if not cut or not demand.memory or of_node or memory % cpus or a_default(demand, was):
        return demand
    stated = memory // cpus
    ratio = -(-stated // demand.memory)
    tasks = max(1, demand.task_cpus // ratio)
    return replace(demand, memory=stated, per_cpu=stated, unclear=0, task_cpus=tasks)

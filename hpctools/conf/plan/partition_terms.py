"""What a partition gives to jobs that do not say, and how much memory may come with each CPU: pure.

slurmctld works both out anew whenever it looks at a waiting job, from the configuration as it is then: jobs
that state no memory, or no CPUs, get what the partition's defaults have become, and one that asks for more
memory with a CPU than MaxMemPerCPU gets more CPUs instead (tried on 22.05.8, 24.11.5 and 26.05.5,
docs/decisions/0104). No command tells whether a job has stated what the default is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpctools.conf.plan.demand import Demand
from hpctools.conf.plan.submitted import a_default, as_submitted
from hpctools.conf.plan.terms import Terms
from hpctools.slurm.types import Job

KEYS = frozenset({"DefCpuPerGPU", "DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode", "MaxMemPerCPU"})
"""The settings, of a partition or of the cluster, that are looked at here."""
_NO_MEMORY = "if it states no memory itself"
_NO_CPUS = "if it states no CPUs itself"
# Reasons of jobs for which slurmctld has not yet worked out the CPUs that come with their GPUs.
_NOT_LOOKED_AT = {"JobHeldUser", "JobHeldAdmin", "Dependency", "BeginTime", "None", "Priority"}


def under(demand: Demand, job: Job, was: Sequence[Terms], will: Terms) -> Demand:
    """Return what a waiting job asks for once slurmctld has looked at it under a partition's terms.

    Args:
        was: the terms now of all partitions that it named: it is shown as one of them made it.
        will: the terms under which it is looked at.
    """
    demand = as_submitted(demand, was)
    return _more_cpus(_other_memory(_cpus_of_gpus(demand, job, was, will), was, will), will)


def _cpus_of_gpus(demand: Demand, job: Job, was: Sequence[Terms], will: Terms) -> Demand:
    gpus = demand.tres.get("gres/gpu", 0)
    looked_at = job.reason not in _NOT_LOOKED_AT and all(terms.gpu_cpus for terms in was)
    unseen = not demand.gpu_cpus and demand.task_cpus <= 1 and not looked_at
    if not gpus or not ("cpu" in demand.given or (unseen and will.gpu_cpus)):
        return demand
    found = _with_cpus(demand, max(demand.own_cpus, will.gpu_cpus * gpus))
    return _doubted(found, "cpu", _NO_CPUS) if unseen else found


def _with_cpus(demand: Demand, cpus: int) -> Demand:
    memory = {"mem": demand.per_cpu * cpus} if demand.per_cpu else {}
    return replace(demand, tres={**demand.tres, "cpu": cpus, **memory})


def _doubted(demand: Demand, tres: str, clause: str) -> Demand:
    return replace(demand, provided={**demand.provided, tres: clause})


def _other_memory(demand: Demand, was: Sequence[Terms], will: Terms) -> Demand:
    given = [terms for terms in was if _by_default(demand, terms)]
    by_several = len(was) > 1 and not given and a_default(demand, was)
    if not (given or by_several) or any(terms.memory == will.memory for terms in given):
        return demand
    gpus = demand.tres.get("gres/gpu", 0) if will.per_gpu else 0
    per_cpu = 0 if gpus else will.per_cpu
    found = replace(
        demand,
        tres={**demand.tres, "mem": _memory(demand, gpus, per_cpu, will)},
        memory=0 if gpus else per_cpu or will.per_node,
        per_cpu=per_cpu,
        unclear=0,
        per_gpu=will.per_gpu if gpus else 0,
    )
    return found if "mem" in demand.given else _doubted(found, "mem", _NO_MEMORY)


def _memory(demand: Demand, gpus: int, per_cpu: int, will: Terms) -> int:
    if gpus:
        return will.per_gpu * gpus
    if per_cpu:
        return per_cpu * demand.tres.get("cpu", 1)
    return (will.per_node or will.node_memory) * demand.tres.get("node", 1)


def _by_default(demand: Demand, was: Terms) -> bool:
    """Whether a job looks as if it stated no memory."""
    if was.per_gpu and demand.tres.get("gres/gpu"):
        return "mem" in demand.given
    if demand.per_gpu:
        return False
    if was.per_cpu:
        return was.per_cpu in (demand.per_cpu, demand.unclear)
    return demand.memory == was.per_node and not demand.per_cpu


def _more_cpus(demand: Demand, will: Terms) -> Demand:
    """With MaxMemPerCPU, CPUs for memory; of a job that asks by GPU the partition's default counts."""
    most, cpus = will.most_per_cpu, demand.tres.get("cpu", 1)
    if not most:
        return demand
    by_gpu = demand.per_gpu > 0
    with_cpu = will.per_cpu if by_gpu else demand.per_cpu
    if with_cpu:
        ratio = -(-with_cpu // most)
        each = 0 if by_gpu else -(-with_cpu // ratio)
        found = replace(demand, per_cpu=each, memory=each or demand.memory) if ratio > 1 else demand
        needed, on_node = ratio * demand.own_cpus, ratio * demand.task_cpus  # no task is on two nodes
    else:
        of_node = will.per_node if by_gpu else demand.memory
        on_node = -(-(of_node or will.node_memory) // most)
        found, needed = demand, on_node * demand.tres.get("node", 1)
    if needed <= cpus and found is demand:
        return demand
    grown = _with_cpus(replace(found, per_node={**found.per_node, "cpu": on_node}), max(needed, cpus))
    doubt = demand.provided.get("mem", "")
    return _doubted(grown, "cpu", doubt) if doubt and needed > cpus else grown


def memory_for_limit(demand: Demand, terms: Terms, *, whole: bool) -> tuple[int, int]:
    """MiB that slurmctld compares with MaxMemPerNode: at least, and at most.

    It counts the CPUs that a job states for one node, or those of the node when it gets it whole; its tasks
    only when it says on how many nodes, which no command tells.
    """
    with_cpu = terms.per_cpu if demand.per_gpu else demand.per_cpu
    if not with_cpu:
        stated = (terms.per_node if demand.per_gpu else demand.memory) or terms.node_memory
        return stated, stated
    nodes = max(demand.nodes, demand.tres.get("node", 1), 1)
    if whole:
        all_of_it = with_cpu * (demand.tres.get("cpu", 1) // max(demand.tres.get("node", 1), 1))
        return all_of_it, all_of_it
    return with_cpu * demand.at_once, with_cpu * max(demand.at_once, -(-demand.own_cpus // nodes))

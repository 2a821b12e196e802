"""Partition lines of slurm.conf: one for each department."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hpctools.conf.gres import allocatable_gpus, node_gres
from hpctools.conf.text import fold, line
from hpctools.conf.topology import ComputeGroup
from hpctools.site.departments import Department
from hpctools.site.model import Site
from hpctools.site.scalars import spell_duration

# A GPU weighs 100 in a job's billing, so that a hundredth of one still counts: Slurm keeps whole numbers.
_GPU_WEIGHT = 100


def partition_lines(site: Site, groups: Iterable[ComputeGroup]) -> str:
    """Render the partition lines; a department whose node groups are all empty now has none."""
    by_name = {group.name: group for group in groups}
    lines = [_partition(site, department, by_name) for department in site.departments if department.partition]
    return "\n# Partitions: one for each department; jobs name theirs, none is the default\n" + "".join(lines)


def _partition(site: Site, department: Department, by_name: Mapping[str, ComputeGroup]) -> str:
    spec = department.partition
    if spec is None:
        return ""
    groups = [by_name[name] for name in spec.node_groups if name in by_name]
    if not groups:
        return f"# {department.partition_name}: its node groups have no nodes now\n"
    accounts = (department.name, *(lab.name for lab in department.labs))
    return line(
        {
            "PartitionName": department.partition_name,
            "Nodes": fold(node for group in groups for node in group.nodes),
            "Default": "NO",
            "AllowAccounts": ",".join(accounts),
            "AllowQos": ",".join(site.allowed_tiers(department)),
            "MaxTime": "UNLIMITED" if spec.max_time is None else spell_duration(spec.max_time),
            "DefaultTime": None if spec.default_time is None else spell_duration(spec.default_time),
            "DefCpuPerGPU": spec.cpus_per_gpu or _even_cpus(groups),
            "DefMemPerCPU": spec.memory_mib_per_cpu or _even_memory(groups),
            "OverSubscribe": "NO",
            "TRESBillingWeights": _billing_weights(groups),
            "State": "UP",
        }
    )


def _even_cpus(groups: Sequence[ComputeGroup]) -> int | None:
    """CPUs of a node over its GPUs, on the node where they are fewest; None without GPUs."""
    parts = [group.hardware.cpus // allocatable_gpus(group.gpus) for group in groups if group.gpus]
    return max(1, min(parts)) if parts else None


def _even_memory(groups: Sequence[ComputeGroup]) -> int:
    """Memory of a node over its CPUs in MiB, on the node where it is least."""
    return max(1, min(group.hardware.memory_mib // group.hardware.cpus for group in groups))


def _billing_weights(groups: Sequence[ComputeGroup]) -> str | None:
    """Weights with which a whole node counts as its GPUs, whichever of its resources a job takes.

    With PriorityFlags=MAX_TRES the largest of them counts. Where groups differ the smaller weight is used,
    so that nobody pays more than for the whole node.
    """
    with_gpus = [(group.hardware, group.gpus) for group in groups if group.gpus]
    if not with_gpus:
        return None
    cpu = min(_GPU_WEIGHT * gpus.count / hardware.cpus for hardware, gpus in with_gpus)
    memory = min(_GPU_WEIGHT * gpus.count * 1024 / hardware.memory_mib for hardware, gpus in with_gpus)
    gpu = min(_GPU_WEIGHT * gpus.count / allocatable_gpus(gpus) for _, gpus in with_gpus)
    weights = [f"CPU={cpu:.2f}", f"Mem={memory:.2f}G", f"GRES/gpu={gpu:.2f}"]
    return ",".join([*weights, *_share_weights(groups)])


def _share_weights(groups: Sequence[ComputeGroup]) -> list[str]:
    weights: dict[str, float] = {}
    for group in groups:
        for gres in node_gres(group.gpus):
            if gres.name != "gpu" and group.gpus:
                weight = _GPU_WEIGHT * group.gpus.count / gres.amount
                weights[gres.name] = min(weight, weights.get(gres.name, weight))
    return [f"GRES/{name}={weight:.2f}" for name, weight in sorted(weights.items())]

"""Partition lines of slurm.conf: those of departments, then those that they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hpctools.conf.billing import billing_weights
from hpctools.conf.gres import allocatable_gpus
from hpctools.conf.text import changed, comment, line
from hpctools.conf.topology import ComputeGroup
from hpctools.site.departments import Department
from hpctools.site.findings import Location
from hpctools.site.model import Site
from hpctools.site.partitions import PartitionSpec, PartitionTerms, SharedPartition
from hpctools.site.scalars import spell_duration

# slurm.conf(5): only one of these may be set.
_MEMORY_KEYS = frozenset({"defmempercpu", "defmempergpu", "defmempernode"})


def partition_lines(site: Site, groups: Iterable[ComputeGroup]) -> str:
    """Render the partition lines; a partition whose node groups are all empty now has none."""
    by_name = {group.name: group for group in groups}
    accounts = _accounts(site)
    lines = [
        _own(site, department, department.partition, accounts, by_name, index)
        for index, department in enumerate(site.departments)
        if department.partition is not None
    ]
    lines += [
        _shared(site, partition, accounts, by_name, index) for index, partition in enumerate(site.partitions)
    ]
    return "\n# Partitions\n" + "".join(lines)


def _accounts(site: Site) -> dict[str, list[str]]:
    """The accounts of each department: its own and those of all labs below it, then their old names.

    Jobs still wait under the old names. AllowQos cannot do the same for tiers: slurmctld 26.05 ends at a QoS
    that slurmdbd does not know, while it only tells of such an account.
    """
    found: dict[str, list[str]] = {}
    for account in site.accounts():
        found.setdefault(account.department.name, []).append(account.name)
    for account in site.accounts():
        if account.owner.renamed_from:
            found[account.department.name].append(account.owner.renamed_from)
    return found


def _own(
    site: Site,
    department: Department,
    terms: PartitionSpec,
    accounts: Mapping[str, Sequence[str]],
    by_name: Mapping[str, ComputeGroup],
    index: int,
) -> str:
    access = {
        "AllowAccounts": ",".join(accounts[department.name]),
        "AllowQos": ",".join(site.allowed_tiers(department)),
    }
    place = ("departments", index, "partition")
    return _partition(site, department.partition_name, terms, access, by_name, place)


def _shared(
    site: Site,
    partition: SharedPartition,
    accounts: Mapping[str, Sequence[str]],
    by_name: Mapping[str, ComputeGroup],
    index: int,
) -> str:
    chosen = partition.departments
    names = None if chosen is None else [name for each in chosen for name in accounts[each]]
    access = {
        "AllowAccounts": None if names is None else ",".join(names),
        "AllowQos": None if partition.tiers is None else ",".join(site.with_replicas(partition.tiers)),
    }
    return _partition(site, partition.name, partition, access, by_name, ("partitions", index))


def _partition(
    site: Site,
    name: str,
    terms: PartitionTerms,
    access: Mapping[str, str | None],
    by_name: Mapping[str, ComputeGroup],
    location: Location,
) -> str:
    groups = [by_name[group] for group in terms.node_groups if group in by_name]
    origin = comment(site.source, location)
    if not groups:
        return f"{origin}# {name}: its node groups have no nodes now\n"
    settings = {
        "PartitionName": name,
        "Nodes": ",".join(sorted(group.folded for group in groups)),
        "Default": "YES" if terms.default else "NO",
        **access,
        "MaxTime": "UNLIMITED" if terms.max_time is None else spell_duration(terms.max_time),
        "DefaultTime": None if terms.default_time is None else spell_duration(terms.default_time),
        "DefCpuPerGPU": terms.cpus_per_gpu or _even_cpus(groups),
        **_memory(terms, groups),
        "PriorityTier": terms.priority_tier,
        "OverSubscribe": terms.over_subscribe.upper(),
        "ExclusiveUser": "YES" if terms.exclusive_user else None,
        "TRESBillingWeights": billing_weights(groups),
        "State": "UP",
    }
    return origin + line(changed(settings, terms.parameters))


def _memory(terms: PartitionTerms, groups: Sequence[ComputeGroup]) -> dict[str, int]:
    if _MEMORY_KEYS & {key.lower() for key in terms.parameters}:
        return {}
    if terms.memory_mib_per_gpu is not None:
        return {"DefMemPerGPU": terms.memory_mib_per_gpu}
    return {"DefMemPerCPU": terms.memory_mib_per_cpu or _even_memory(groups)}


def _even_cpus(groups: Sequence[ComputeGroup]) -> int | None:
    """CPUs of a node over its GPUs, on the node where they are fewest; None without GPUs."""
    parts = [group.hardware.cpus // allocatable_gpus(group.gpus) for group in groups if group.gpus]
    return max(1, min(parts)) if parts else None


def _even_memory(groups: Sequence[ComputeGroup]) -> int:
    """Memory of a node over its CPUs in MiB, on the node where it is least."""
    return max(1, min(group.hardware.memory_mib // group.hardware.cpus for group in groups))

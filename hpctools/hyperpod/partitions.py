"""The partitions that HyperPod itself makes: one of each compute group, and `dev` of all of them.

HyperPod's agent writes them into slurm.conf; the site's own stand in its Include beside them. Slurm refuses a
partition that is declared twice, so a group's partition is never called like one of the site's.
"""

from __future__ import annotations

from collections.abc import Mapping

from hpctools.site.hyperpod import GroupOptions
from hpctools.site.hyperpod_rules import DEV_PARTITION, site_partitions
from hpctools.site.model import Site


def agent_partitions(site: Site) -> Mapping[str, str]:
    """Return the partition that HyperPod makes of each compute group, by the group's name."""
    taken = site_partitions(site) | {DEV_PARTITION}
    options = site.hyperpod.node_groups if site.hyperpod else {}
    compute = [group.name for group in site.node_groups if group.role == "compute"]
    return {name: _partition(name, options.get(name), taken) for name in compute}


def closed_partitions(site: Site) -> tuple[str, ...]:
    """Return the partitions of HyperPod's that people may not use, since the site has its own.

    HyperPod's have no time limit and let everybody in: jobs there would go past the departments'.
    """
    if not site_partitions(site) or (site.hyperpod is not None and site.hyperpod.agent_partitions == "open"):
        return ()
    return (DEV_PARTITION, *agent_partitions(site).values())


def _partition(group: str, options: GroupOptions | None, taken: frozenset[str]) -> str:
    if options is not None and options.partition is not None:
        return options.partition
    return group if group not in taken else f"{group}-nodes"


def shared_groups(site: Site) -> Mapping[str, tuple[str, ...]]:
    """Return the site's partitions of each compute group that serves several, by the group's name."""
    found: dict[str, list[str]] = {}
    for department in site.departments:
        if department.partition is not None:
            for group in department.partition.node_groups:
                found.setdefault(group, []).append(department.partition_name)
    for partition in site.partitions:
        for group in partition.node_groups:
            found.setdefault(group, []).append(partition.name)
    return {group: tuple(names) for group, names in found.items() if len(names) > 1}

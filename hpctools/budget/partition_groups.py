"""Which node groups a partition has: what a job in it may cost."""

from __future__ import annotations

from hpctools.site import Site


def partition_groups(site: Site) -> dict[str, tuple[str, ...]]:
    """The node groups of every partition that jobs name, departments' and shared ones."""
    own = {
        department.partition_name: department.partition.node_groups
        for department in site.departments
        if department.partition is not None
    }
    return own | {partition.name: partition.node_groups for partition in site.partitions}

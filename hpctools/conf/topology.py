"""Which nodes there really are, and what each has: the site's groups seen through the facts."""

from __future__ import annotations

from dataclasses import dataclass

from hpctools.conf.facts import Facts
from hpctools.errors import SiteError
from hpctools.site.model import Site
from hpctools.site.nodes import Gpus, Hardware, NodeGroup


@dataclass(frozen=True)
class ComputeGroup:
    """A node group that runs jobs and has at least one node.

    Attributes:
        nodes: the names of its nodes, in order.
        hardware: what each node has.
        features: words that jobs may constrain by.
    """

    name: str
    nodes: tuple[str, ...]
    hardware: Hardware
    gpus: Gpus | None
    features: tuple[str, ...]


def compute_groups(site: Site, facts: Facts) -> tuple[ComputeGroup, ...]:
    """Return the groups that run jobs, without those that have no nodes now.

    Raises:
        SiteError: the hardware of a group is not known.
    """
    groups = [group for group in site.node_groups if group.role == "compute"]
    return tuple(_seen(site, group, facts) for group in groups if site.node_names(group.name, facts))


def _seen(site: Site, group: NodeGroup, facts: Facts) -> ComputeGroup:
    words = (group.name, group.capacity)
    return ComputeGroup(
        name=group.name,
        nodes=site.node_names(group.name, facts),
        hardware=_hardware(group, facts),
        gpus=group.gpus,
        features=tuple(dict.fromkeys(word for word in words if word)),
    )


def _hardware(group: NodeGroup, facts: Facts) -> Hardware:
    hardware = facts.hardware.get(group.name, group.node_hardware)
    if hardware is None:
        raise SiteError(
            f"the hardware of node group {group.name!r} is not known", "state it under `hardware`"
        )
    return hardware

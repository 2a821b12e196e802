"""Which nodes there really are, and what each has: the site's groups seen through the facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from hpctools.conf.detection import seen_gpus
from hpctools.conf.facts import Facts
from hpctools.conf.text import fold
from hpctools.errors import SiteError
from hpctools.site.findings import Location
from hpctools.site.gpus import Gpus
from hpctools.site.hostlist import expand
from hpctools.site.mig import Product, fits, products
from hpctools.site.model import Site
from hpctools.site.nodes import Hardware, NodeGroup


@dataclass(frozen=True)
class ComputeGroup:
    """A node group that runs jobs and has at least one node.

    Attributes:
        nodes: the names of all of its nodes, in order.
        hardware: what each node has.
        gpus: the GPUs of each node, with their detection decided.
        features: words that jobs may constrain by.
        cloud: the last of `nodes`, which come and go.
        addresses: addresses by node, where the site states them.
        weight: jobs take nodes of a lower one first; None for Slurm's default.
        parameters: settings of the node lines in Slurm's words.
        location: where the site file declares it.
        gres: other countable things of each node.
        gres_lines: lines of gres.conf without NodeName that stand instead of ours; none for ours.
        product: the GPU that MIG slices are of, where the site tells.
    """

    name: str
    nodes: tuple[str, ...]
    hardware: Hardware
    gpus: Gpus | None
    features: tuple[str, ...]
    cloud: tuple[str, ...] = ()
    addresses: Mapping[str, str] = field(default_factory=dict)
    weight: int | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    location: Location = ()
    gres: Mapping[str, int] = field(default_factory=dict)
    gres_lines: tuple[str, ...] = ()
    product: Product | None = None

    @property
    def static(self) -> tuple[str, ...]:
        """The nodes that are always there."""
        return self.nodes[: len(self.nodes) - len(self.cloud)]

    @cached_property
    def folded(self) -> str:
        """All of its nodes as a host list."""
        return fold(self.nodes)


def compute_groups(site: Site, facts: Facts) -> tuple[ComputeGroup, ...]:
    """Return the groups that run jobs, without those that have no nodes now.

    Raises:
        SiteError: the hardware of a group is not known.
    """
    seen = [
        _seen(site, group, facts, ("node_groups", index))
        for index, group in enumerate(site.node_groups)
        if group.role == "compute"
    ]
    return tuple(group for group in seen if group.nodes)


def _seen(site: Site, group: NodeGroup, facts: Facts, location: Location) -> ComputeGroup:
    words = (group.name, group.capacity, *group.features)
    cloud = site.cloud_node_names(group.name, facts)
    gpus = seen_gpus(group.gpus, site.cluster.gpu_detection, facts)
    addresses = expand(group.addresses) if group.addresses is not None else ()
    return ComputeGroup(
        name=group.name,
        nodes=site.node_names(group.name, facts) + cloud,
        hardware=_hardware(group, facts),
        gpus=gpus,
        features=tuple(dict.fromkeys(word for word in words if word)),
        cloud=cloud,
        addresses=dict(zip(group.names, addresses, strict=False)),
        weight=group.weight,
        parameters=group.parameters,
        location=location,
        gres=group.gres,
        gres_lines=group.gres_lines,
        product=_product(group, gpus),
    )


def _product(group: NodeGroup, gpus: Gpus | None) -> Product | None:
    if gpus is None or not gpus.layout:
        return None
    found = products(gpus.type, group.instance_type)
    return next((product for product in found if fits(product, gpus.layout)), None)


def _hardware(group: NodeGroup, facts: Facts) -> Hardware:
    hardware = facts.hardware.get(group.name, group.node_hardware)
    if hardware is None:
        raise SiteError(
            f"the hardware of node group {group.name!r} is not known", "state it under `hardware`"
        )
    return hardware

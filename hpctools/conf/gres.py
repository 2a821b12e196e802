"""GPUs, whole and shared: gres.conf, and the `Gres=` of node lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hpctools.conf.facts import Facts
from hpctools.conf.text import HEADER, fold, line
from hpctools.conf.topology import ComputeGroup
from hpctools.site.nodes import Gpus


class Gres(NamedTuple):
    """A generic resource of one node: `name[:type]:count`."""

    name: str
    type: str | None
    amount: int

    def __str__(self) -> str:
        return ":".join(str(part) for part in self if part is not None)


def node_gres(gpus: Gpus | None) -> tuple[Gres, ...]:
    """Return the generic resources of a node with these GPUs."""
    if gpus is None:
        return ()
    whole = Gres("gpu", gpus.type, gpus.count)
    share = gpus.share
    if share is None:
        return (whole,)
    if share.mig is not None:
        return tuple(Gres("gpu", f"{gpus.type}_{slice_}", n * gpus.count) for slice_, n in share.mig.items())
    if share.mps is not None:
        return (whole, Gres("mps", None, share.mps * gpus.count))
    return (whole, Gres("shard", None, (share.shards_per_gpu or 1) * gpus.count))


def allocatable_gpus(gpus: Gpus) -> int:
    """Return how many of a node's `gpu` resources jobs can get: whole GPUs, or MIG slices."""
    return sum(gres.amount for gres in node_gres(gpus) if gres.name == "gpu")


def gres_names(groups: Iterable[ComputeGroup]) -> tuple[str, ...]:
    """Return the kinds of generic resources, `gpu` first: slurm.conf's GresTypes."""
    return tuple(dict.fromkeys(sorted(gres.name for group in groups for gres in node_gres(group.gpus))))


def gres_conf(groups: Iterable[ComputeGroup], facts: Facts) -> str:
    """Render gres.conf.

    slurmctld reads it too: shards without the records of their GPUs are fatal to it (measured on 22.05.8).
    """
    lines = [record for group in groups if group.gpus for record in _records(group, group.gpus, facts)]
    return HEADER + "AutoDetect=off\n" + "".join(lines)


def _records(group: ComputeGroup, gpus: Gpus, facts: Facts) -> Iterator[str]:
    nodes = fold(group.nodes)
    if gpus.share is not None and gpus.share.mig is not None:
        # The device files of slices are numbered by the driver: only NVML can tell them.
        yield line({"NodeName": nodes, "AutoDetect": "nvml"})
        return
    whole, *shared = node_gres(gpus)
    numbers = f"[0-{gpus.count - 1}]" if gpus.count > 1 else "0"
    yield line({"NodeName": nodes, "Name": "gpu", "Type": whole.type, "File": facts.gpu_device + numbers})
    for gres in shared:
        # Without File, Slurm spreads the count evenly over the node's GPUs (gres.html, "Sharding").
        yield line({"NodeName": nodes, "Name": gres.name, "Count": gres.amount})

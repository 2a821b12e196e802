"""GPUs, whole and shared, and what is only counted: gres.conf, and the `Gres=` of node lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from hpctools.conf.facts import Facts
from hpctools.conf.text import HEADER, line
from hpctools.conf.topology import ComputeGroup
from hpctools.errors import SiteError
from hpctools.site.gpus import Gpus, MigDevice
from hpctools.slurm.versions import (
    Release,
    keeps_whole_gpus_from_shards,
    knows_slices_beside_shares,
    nvml_names_slices_by_profile,
    spell_release,
)


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
        return tuple(Gres("gpu", slice_type(gpus, name), n * gpus.count) for name, n in share.mig.items())
    if share.mps is not None:
        return (whole, Gres("mps", None, share.mps * gpus.count))
    return (whole, Gres("shard", None, (share.shards_per_gpu or 1) * gpus.count))


def slice_type(gpus: Gpus, profile: str) -> str:
    """Return what Slurm calls a MIG slice: `a100_3g.20gb`.

    It begins with a letter: 22.05.8 reads the `3` of a type `3g.20gb` as a number and refuses the job's steps
    (measured). With nvml it has to be a part of what is detected, which the site's rules see to.
    """
    return f"{gpus.type}_{profile}"


def group_gres(group: ComputeGroup) -> tuple[Gres, ...]:
    """Return all generic resources of a node of a group."""
    return node_gres(group.gpus) + tuple(Gres(name, None, amount) for name, amount in group.gres.items())


def allocatable_gpus(gpus: Gpus) -> int:
    """Return how many of a node's `gpu` resources jobs can get: whole GPUs, or MIG slices."""
    return sum(gres.amount for gres in node_gres(gpus) if gres.name == "gpu")


def gres_names(groups: Iterable[ComputeGroup]) -> tuple[str, ...]:
    """Return the kinds of generic resources: slurm.conf's GresTypes."""
    return tuple(sorted({gres.name for group in groups for gres in group_gres(group)}))


def tracked_gres(groups: Iterable[ComputeGroup]) -> tuple[str, ...]:
    """Return what slurmdbd counts: every kind, and the types of GPUs where there are several.

    Without the types nobody can say afterwards what kind of GPU a job had, nor limit one kind.
    """
    all_ = list(groups)
    types = sorted({gres.type for group in all_ for gres in node_gres(group.gpus) if gres.type})
    typed = [f"gpu:{each}" for each in types] if len(types) > 1 else []
    return tuple(sorted([*gres_names(all_), *typed]))


def check_sharing(groups: Iterable[ComputeGroup], release: Release) -> None:
    """Refuse MIG slices beside shards or MPS where the release mixes them up.

    Raises:
        SiteError: the site has both, and the release cannot.
    """
    ways = {group.name: group.gpus for group in groups if group.gpus and group.gpus.share}
    sliced = [name for name, gpus in ways.items() if gpus.layout]
    others = [name for name in ways if name not in sliced]
    if sliced and others and not knows_slices_beside_shares(release):
        raise SiteError(
            f"Slurm {spell_release(release)} loses the MIG slices of {', '.join(sliced)} beside the shards "
            f"or MPS of {', '.join(others)}",
            "keep one of both, or use Slurm 23.02.7 or later",
        )


def gres_conf(groups: Iterable[ComputeGroup], facts: Facts, release: Release) -> str:
    """Render gres.conf.

    slurmctld reads it too: shards without the records of their GPUs are fatal to it (measured on 22.05.8).
    """
    lines = [record for group in groups for record in _records(group, facts, release)]
    return HEADER + "AutoDetect=off\n" + "".join(lines)


def _records(group: ComputeGroup, facts: Facts, release: Release) -> Iterator[str]:
    nodes = group.folded
    if group.gres_lines:
        yield from (f"NodeName={nodes} {stated}\n" for stated in group.gres_lines)
        return
    if group.gpus is not None:
        if group.gpus.detection == "nvml":
            yield from _detected(nodes, group.gpus, release)
        if group.gpus.mig_devices and group.gpus.detection != "nvml":
            yield from (_slice(nodes, group.gpus, device, facts) for device in group.gpus.mig_devices)
        elif not group.gpus.layout:
            yield from _whole(nodes, group.gpus, facts, release)
    for name, amount in group.gres.items():
        # Nothing but a number: without the flag Slurm looks for a plugin of this name (gres.conf(5)).
        yield line({"NodeName": nodes, "Name": name, "Count": amount, "Flags": "CountOnly"})


def _detected(nodes: str, gpus: Gpus, release: Release) -> Iterator[str]:
    if gpus.layout and not nvml_names_slices_by_profile(release):
        yield (
            "# This release names slices by the memory that it measures (3g.39gb for 3g.40gb): compare with\n"
            "# `slurmd -G` on a node.\n"
        )
    yield line({"NodeName": nodes, "AutoDetect": "nvml"})


def _whole(nodes: str, gpus: Gpus, facts: Facts, release: Release) -> Iterator[str]:
    whole, *shared = node_gres(gpus)
    if shared and not keeps_whole_gpus_from_shards(release):
        yield "# This release may give a GPU whole while another job has a part of it: ask for parts only.\n"
    numbers = f"[0-{gpus.count - 1}]" if gpus.count > 1 else "0"
    # Beside nvml too: slurmctld detects nothing, and slurmd checks what it detects against this.
    yield line({"NodeName": nodes, "Name": "gpu", "Type": whole.type, "File": facts.gpu_device + numbers})
    for gres in shared:
        # Without File, Slurm spreads the count evenly over the node's GPUs (gres.html, "Sharding").
        yield line({"NodeName": nodes, "Name": gres.name, "Count": gres.amount})


def _slice(nodes: str, gpus: Gpus, device: MigDevice, facts: Facts) -> str:
    """The GPU and both capabilities: a job that lacks one of them cannot use the slice."""
    folder = PurePosixPath(facts.gpu_device).parent / "nvidia-caps"
    files = [f"{facts.gpu_device}{device.gpu}"]
    files += [f"{folder}/nvidia-cap{number}" for number in (device.instance, device.compute)]
    settings = {"NodeName": nodes, "Name": "gpu", "Type": slice_type(gpus, device.profile)}
    return line({**settings, "MultipleFiles": ",".join(files)})

"""What GPUs cannot do: findings about sharing that no node, or no driver, would carry out.

Asked of a site whose parts are valid, like `places.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hpctools.site import mig
from hpctools.site.findings import Finding, Location
from hpctools.site.model import Site
from hpctools.site.nodes import NodeGroup
from hpctools.site.partitions import PartitionTerms

Check = Callable[[Site], Iterator[Finding]]


def check_gpus(site: Site) -> Iterator[Finding]:
    """Apply every check to a site; findings name the lines of its source."""
    for check in CHECKS:
        yield from check(site)


def partitions_of(site: Site) -> Iterator[tuple[Location, PartitionTerms]]:
    """Every partition of a site and where it stands."""
    for index, department in enumerate(site.departments):
        if department.partition is not None:
            yield ("departments", index, "partition"), department.partition
    for index, partition in enumerate(site.partitions):
        yield ("partitions", index), partition


def shared_gpus_are_not_in_whole_nodes(site: Site) -> Iterator[Finding]:
    """A partition that gives out whole nodes gives nobody a part of a GPU that another job could share."""
    shared = {group.name for group in site.node_groups if group.gpus and group.gpus.share}
    for place, terms in partitions_of(site):
        clash = [name for name in terms.node_groups if name in shared]
        key = _whole_nodes(terms)
        if key and clash:
            yield site.source.finding(
                (*place, key),
                f"exclusive, with the shared GPUs of {', '.join(clash)}",
                "another value: one job would have the whole node, and nobody could share its GPUs",
            )


def _whole_nodes(terms: PartitionTerms) -> str | None:
    """The key by which a partition gives out whole nodes, also in Slurm's own words; or None."""
    stated = {key.lower(): value.lower() for key, value in terms.parameters.items()}
    if (
        "exclusive" in (stated.get("oversubscribe"), stated.get("shared"))
        or stated.get("exclusive") == "node"
    ):
        return "parameters"
    ours = terms.over_subscribe == "exclusive" and "oversubscribe" not in stated
    return "over_subscribe" if ours else None


def mig_layouts_exist(site: Site) -> Iterator[Finding]:
    """A MIG layout is one that the GPU offers, with a place for each slice."""
    for place, group in _sliced(site):
        gpus = group.gpus
        assert gpus is not None  # noqa: S101 - for the type checker; `_sliced` looked
        found = mig.products(gpus.type, group.instance_type)
        problem = _unknown(group, gpus.type) if not found else _misfit(found, gpus.layout)
        if problem:
            key = "type" if not found else "share"
            where = (*place, "gpus", key) if not found else (*place, "gpus", "share", "mig")
            yield site.source.finding(where, *problem)


def _sliced(site: Site) -> Iterator[tuple[Location, NodeGroup]]:
    for index, group in enumerate(site.node_groups):
        if group.gpus and group.gpus.layout:
            yield ("node_groups", index), group


def _unknown(group: NodeGroup, gpu_type: str) -> tuple[str, str]:
    real = mig.instance_gpu(group.instance_type)
    if real and mig.products(gpu_type):
        return f"{gpu_type!r} on {group.instance_type}", f"its GPU: {real}"
    return f"{gpu_type!r} with mig", f"a GPU that has MIG: {', '.join(mig.model_names())}"


def _misfit(found: tuple[mig.Product, ...], layout: dict[str, int]) -> tuple[str, str] | None:
    if any(mig.fits(product, layout) for product in found):
        return None
    offering = [product for product in found if all(map(product.profile, layout))]
    text = ", ".join(f"{count} of {name}" for name, count in layout.items())
    if offering:
        title = offering[0].title
        return text, f"slices that find places beside each other on one {title} (nvidia-smi mig -lgipp)"
    offers = "; ".join(f"{p.title}: {', '.join(profile.name for profile in p.profiles)}" for p in found)
    return text, f"profiles of one GPU: {offers}"


def slices_have_files(site: Site) -> Iterator[Finding]:
    """Without nvml the device files of MIG slices must be told: the driver numbers them."""
    for place, group in _sliced(site):
        gpus = group.gpus
        if gpus and gpus.detected_by(site.cluster.gpu_detection) == "explicit" and not gpus.mig_devices:
            yield site.source.finding(
                (*place, "gpus", "share", "mig"),
                "explicit detection and no mig_devices",
                "mig_devices, with the numbers in /proc/driver/nvidia-caps/mig-minors; or detection: nvml",
            )


def nvml_knows_the_type(site: Site) -> Iterator[Finding]:
    """A type that is no part of what Slurm's nvml plugin detects makes every node of the group INVALID."""
    for place, group in _sliced(site):
        gpus = group.gpus
        if not gpus or gpus.detected_by(site.cluster.gpu_detection) != "nvml":
            continue
        names = mig.detected_names(gpus.type, group.instance_type)
        # The type of a slice is `<type>_<profile>`; Slurm wants it to be a part of the detected name.
        if names and not any(name.endswith(gpus.type) for name in names):
            short = " or ".join(name.removeprefix("nvidia_") for name in names)
            yield site.source.finding(
                (*place, "gpus", "type"),
                f"{gpus.type!r} for slices that nvml calls {' or '.join(f'{name}_...' for name in names)}",
                f"{short}: the nodes would be INVALID",
            )


def clouds_are_explicit(site: Site) -> Iterator[Finding]:
    """AutoDetect cannot be used with cloud nodes (gres.conf(5))."""
    if site.cluster.power_saving is None:
        return
    for index, group in enumerate(site.node_groups):
        comes_and_goes = group.role == "compute" and group.count.min < group.count.max
        if comes_and_goes and group.gpus and group.gpus.detected_by(site.cluster.gpu_detection) == "nvml":
            yield site.source.finding(
                ("node_groups", index, "gpus"),
                "nvml detection on nodes that come and go",
                "detection: explicit (with mig_devices for MIG), since Slurm cannot detect on cloud nodes",
            )


CHECKS: tuple[Check, ...] = (
    shared_gpus_are_not_in_whole_nodes,
    mig_layouts_exist,
    slices_have_files,
    nvml_knows_the_type,
    clouds_are_explicit,
)

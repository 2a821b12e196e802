"""What surprises people about shared GPUs: it works, and not as one would think."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hpctools.site import mig
from hpctools.site.findings import Finding, Location
from hpctools.site.model import Site

Warn = Callable[[Site], Iterator[Finding]]


def shards_isolate_nothing(site: Site) -> Iterator[Finding]:
    """Slurm counts shards; nothing keeps a job to its part of the GPU (gres.html, "Sharding")."""
    for index, group in enumerate(site.node_groups):
        if group.gpus and group.gpus.share and group.gpus.share.shards_per_gpu:
            yield site.source.warning(
                ("node_groups", index, "gpus", "share", "shards_per_gpu"),
                "shards, whose jobs see all of the GPU's memory and slow each other down",
                "people who trust each other, or mig where they do not",
            )


def mps_serves_one_user(site: Site) -> Iterator[Finding]:
    """An MPS server serves one user; others wait for it (CUDA MPS documentation, "Limitations")."""
    for index, group in enumerate(site.node_groups):
        if group.gpus and group.gpus.share and group.gpus.share.mps:
            yield site.source.warning(
                ("node_groups", index, "gpus", "share", "mps"),
                "MPS, which serves one user at a time, and in Slurm one GPU of a node",
                "jobs of one user, a Prolog that starts MPS servers; or shards_per_gpu",
            )


def limits_do_not_count_shards(site: Site) -> Iterator[Finding]:
    """Limits on gres/gpu count whole GPUs and slices only: a job with shards passes them (measured).

    Told once, at the first department that it is about.
    """
    shared = {g.name for g in site.node_groups if g.gpus and g.gpus.share and not g.gpus.layout}
    reach = _reach(site)
    found = {
        index: [name for name in reach.get(department.name, ()) if name in shared]
        for index, department in enumerate(site.departments)
        if any(getattr(department.limits, key) is not None for key in _GPU_LIMITS)
    }
    concerned = [index for index, groups in found.items() if groups]
    if concerned:
        groups = dict.fromkeys(name for index in concerned for name in found[index])
        others = f", here and for {len(concerned) - 1} more," if len(concerned) > 1 else ","
        yield site.source.warning(
            ("departments", concerned[0], "limits"),
            f"limits on GPUs{others} which jobs with shards or MPS on {', '.join(groups)} escape",
            "settings: {GrpTRES: gres/shard=N} of the account beside them, where that matters",
        )


_GPU_LIMITS = ("gpus", "gpus_per_user", "gpus_per_job")


def _reach(site: Site) -> dict[str, list[str]]:
    """The node groups that the jobs of each department can get to."""
    found: dict[str, list[str]] = {
        each.name: list(each.partition.node_groups) if each.partition else [] for each in site.departments
    }
    for partition in site.partitions:
        for name in partition.departments if partition.departments is not None else found:
            found[name] += [group for group in partition.node_groups if group not in found[name]]
    return found


def memory_is_not_told(site: Site) -> Iterator[Finding]:
    """Where a layout suits several products the nodes may have the other one."""
    for index, group in enumerate(site.node_groups):
        if not group.gpus or not group.gpus.layout:
            continue
        found = mig.products(group.gpus.type, group.instance_type)
        others = [p for p in found if not mig.fits(p, group.gpus.layout)]
        if others and len(others) < len(found):
            place: Location = ("node_groups", index, "gpus", "type")
            titles = ", ".join(product.title for product in others)
            yield site.source.warning(
                place,
                f"{group.gpus.type!r}, which may also be {titles} without these slices",
                "a look at `nvidia-smi -L` on the nodes, or the instance_type, which tells the memory",
            )


GPU_WARNINGS: tuple[Warn, ...] = (
    shards_isolate_nothing,
    mps_serves_one_user,
    limits_do_not_count_shards,
    memory_is_not_told,
)

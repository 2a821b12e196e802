"""TRESBillingWeights: what a job counts in the fair share for what it keeps others from using."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpctools.conf.gres import slice_type
from hpctools.conf.topology import ComputeGroup
from hpctools.site.gpus import Gpus
from hpctools.site.mig import fractions

# A GPU weighs 100 in a job's billing, so that a hundredth of one still counts: Slurm keeps whole numbers.
GPU_WEIGHT = 100


def billing_weights(groups: Sequence[ComputeGroup]) -> str | None:
    """Return weights with which a whole node counts as its GPUs, whatever of it a job takes.

    With PriorityFlags=MAX_TRES the largest of them counts. Where groups differ the smaller weight is used,
    so that nobody pays more than for the whole node. GPUs that differ in weight, as MIG slices do, are
    weighed by type; a job that names no type counts the type that it got, and at least the smallest weight.

    Returns:
        None when no group has GPUs: Slurm then counts CPUs.
    """
    with_gpus = [(group.hardware, group.gpus) for group in groups if group.gpus]
    if not with_gpus:
        return None
    cpu = min(GPU_WEIGHT * gpus.count / hardware.cpus for hardware, gpus in with_gpus)
    memory = min(GPU_WEIGHT * gpus.count * 1024 / hardware.memory_mib for hardware, gpus in with_gpus)
    weights = {"CPU": f"{cpu:.2f}", "Mem": f"{memory:.2f}G"}
    return ",".join(f"{name}={weight}" for name, weight in {**weights, **_gres_weights(groups)}.items())


def _gres_weights(groups: Sequence[ComputeGroup]) -> dict[str, str]:
    typed: dict[str, float] = {}
    shared: dict[str, float] = {}
    for group in groups:
        if group.gpus:
            _lower(typed, _gpu_weights(group, group.gpus))
            _lower(shared, _share_weights(group.gpus))
    kinds = {"gpu": min(typed.values())}
    if len(set(typed.values())) > 1:
        kinds |= {f"gpu:{name}": weight for name, weight in sorted(typed.items())}
    return {
        f"GRES/{name}": f"{weight:.2f}" for name, weight in {**kinds, **dict(sorted(shared.items()))}.items()
    }


def _lower(weights: dict[str, float], others: Iterator[tuple[str, float]]) -> None:
    for name, weight in others:
        weights[name] = min(weight, weights.get(name, weight))


def _gpu_weights(group: ComputeGroup, gpus: Gpus) -> Iterator[tuple[str, float]]:
    if not gpus.layout:
        yield gpus.type, float(GPU_WEIGHT)
    for name, part in fractions(group.product, gpus.layout).items():
        yield slice_type(gpus, name), GPU_WEIGHT * part


def _share_weights(gpus: Gpus) -> Iterator[tuple[str, float]]:
    share = gpus.share
    if share and share.shards_per_gpu:
        yield "shard", GPU_WEIGHT / share.shards_per_gpu
    if share and share.mps:
        yield "mps", GPU_WEIGHT / share.mps

"""How a node knows its GPUs: what the site says, the cluster's way, and what the facts make of both."""

from __future__ import annotations

from collections.abc import Iterator

from hpctools.conf.facts import Facts
from hpctools.site.gpus import Detection, Gpus, MigDevice

SLICES_PER_GPU = 7
"""MIG slices that one GPU has at most (NVIDIA MIG User Guide, "Supported GPUs")."""


def seen_gpus(gpus: Gpus | None, usual: Detection | None, facts: Facts) -> Gpus | None:
    """Return a group's GPUs with their detection decided, and with device files where those are made up.

    Args:
        gpus: what the site says of the group.
        usual: the cluster's way of detection.
        facts: what there is.
    """
    if gpus is None:
        return None
    if not facts.made_up_gpus:
        return gpus.model_copy(update={"detection": gpus.detected_by(usual)})
    share = gpus.share
    if share is not None and share.mig is not None and share.mig_devices is None:
        share = share.model_copy(update={"mig_devices": tuple(_made_up(gpus))})
    return gpus.model_copy(update={"detection": "explicit", "share": share})


def made_up_capabilities(gpus: int) -> range:
    """Return the numbers of the capability files that slices of this many made-up GPUs have at most."""
    return range(1, 2 * SLICES_PER_GPU * gpus + 1)


def _made_up(gpus: Gpus) -> Iterator[MigDevice]:
    """Two files for each slice, counted through the GPUs, each of which has room for all it could have."""
    for gpu in range(gpus.count):
        names = [name for name, count in gpus.layout.items() for _ in range(count)]
        for place, name in enumerate(names, gpu * SLICES_PER_GPU):
            yield MigDevice(gpu=gpu, profile=name, instance=2 * place + 1, compute=2 * place + 2)

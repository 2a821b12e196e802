"""Several workers on one GPU over nccl, which refuses that.

Each says that it is a host of its own with a GPU of its own (`NCCL_HOSTID`). Then nccl's ranks talk over the
network, and the GPU's time is sliced between their kernels: what they do is right, and not fast.
"""

from __future__ import annotations

import os
from dataclasses import replace

import torch

from hpctools.elastic import devices, links


def pretend_own_host() -> None:
    """Call it before the loader is made."""
    name = f"{os.environ.get('HPCTOOLS_WORKER', 'lone')}-{os.getpid()}"
    os.environ["NCCL_HOSTID"] = name
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    of_device = devices.accelerator_of

    def accelerator_of(device: torch.device | None) -> devices.Accelerator | None:
        found = of_device(device)
        return None if found is None else replace(found, card=replace(found.card, uuid=name, place=name))

    setattr(links, "accelerator_of", accelerator_of)  # noqa: B010 - it is no part of what the module exports

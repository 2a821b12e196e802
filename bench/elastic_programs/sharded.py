"""A sharded training of so many parameters, for `bench/sharded.py`; steps take as long as they do.

BENCH_DEVICE and BENCH_OWN_HOST are as in model.py.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from bench.one_gpu import pretend_own_host
from hpctools import elastic

LAYERS = 4
out, parameters, stop = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
width = int((parameters / LAYERS) ** 0.5)
worker = os.environ.get("HPCTOOLS_WORKER", "lone")
device: Any = os.environ.get("BENCH_DEVICE", "cpu")


class Samples:
    """Rows that cost nothing to make."""

    def __len__(self) -> int:
        """More than will be used."""
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        """One sample, shape (width,)."""
        return torch.full((width,), 1e-6 * index)


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A few large layers, each sharded by itself."""
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(LAYERS)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)


if "BENCH_OWN_HOST" in os.environ:
    pretend_own_host()
sizes: dict[str, Any] = {"batch_size": 16, "epochs": 1, "seed": 1, "shards": 4}
mode: Any = os.environ.get("BENCH_MODE", "fast")
loader = elastic.ShardedLoader(build, Samples(), **sizes, device=device, mode=mode)
with (out / f"{worker}.jsonl").open("w", buffering=1) as log:
    for inputs in loader:
        time.sleep(0.05)
        if not loader.backward(loader.model(inputs.to(device)).square().mean()):
            continue
        loader.optimizer.step()
        loader.optimizer.zero_grad()
        if loader.rank == 0:
            log.write(
                json.dumps(
                    {"world": loader.world_size, "at": time.monotonic(), "over": loader.reduce_backend}
                )
                + "\n"
            )
        if stop.exists():
            os._exit(0)

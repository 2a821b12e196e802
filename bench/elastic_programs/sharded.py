"""A sharded training of so many parameters, for `bench/sharded.py`; steps take as long as they do."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from hpctools import elastic

LAYERS = 4
out, parameters, stop = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
width = int((parameters / LAYERS) ** 0.5)
worker = os.environ.get("HPCTOOLS_WORKER", "lone")


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


loader = elastic.ShardedLoader(build, Samples(), batch_size=16, epochs=1, seed=1, shards=4)
with (out / f"{worker}.jsonl").open("w", buffering=1) as log:
    for inputs in loader:
        time.sleep(0.05)
        if not loader.backward(loader.model(inputs).square().mean()):
            continue
        loader.optimizer.step()
        loader.optimizer.zero_grad()
        if loader.rank == 0:
            log.write(json.dumps({"world": loader.world_size, "at": time.monotonic()}) + "\n")
        if stop.exists():
            os._exit(0)

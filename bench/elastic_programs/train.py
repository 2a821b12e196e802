"""The training of the benches with hpctools.elastic: `train.py LOG_FOLDER [NAME=VALUE...]` (environment)."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.update(each.partition("=")[::2] for each in sys.argv[2:])

from model import BATCH, DEVICE, EPOCHS, LOADERS, SAMPLE_SECONDS, SHARDS, Samples, StepLog, build
from torch.nn.functional import mse_loss

from hpctools import elastic

log = StepLog(Path(sys.argv[1]))
model, optimizer = build()
mode: Any = os.environ.get("BENCH_MODE", "exact")
sizes: dict[str, Any] = {"batch_size": BATCH, "epochs": EPOCHS, "shards": SHARDS, "seed": 1, "mode": mode}
loader = elastic.Loader(model, optimizer, Samples(), num_workers=LOADERS, **sizes)
is_practice = True  # what a worker is fed before it is let in does not count
for _ in range(EPOCHS):
    for indices, inputs, targets in loader:
        if not is_practice:
            log.fed(loader.step + 1, indices.tolist(), loader.generation)
        is_practice = False
        time.sleep(SAMPLE_SECONDS * len(inputs))
        loss = mse_loss(model(inputs.to(DEVICE)), targets.to(DEVICE))
        if not loader.backward(loss):
            continue
        optimizer.step()
        log.committed(loader.step, loader.indices)
        if loader.rank == 0:
            log.step(loader.step, loader.world_size, loader.reduce_backend)

"""The training of the benches with hpctools.elastic: `train.py LOG_FOLDER`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from model import BATCH, EPOCHS, SAMPLE_SECONDS, SHARDS, Samples, StepLog, build
from torch.nn.functional import mse_loss

from hpctools import elastic

log = StepLog(Path(sys.argv[1]))
model, optimizer = build()
loader = elastic.Loader(model, optimizer, Samples(), batch_size=BATCH, epochs=EPOCHS, shards=SHARDS, seed=1)
is_practice = True  # what a worker is fed before it is let in does not count
for _ in range(EPOCHS):
    for indices, inputs, targets in loader:
        if not is_practice:
            log.fed(loader.step + 1, indices.tolist())
        is_practice = False
        time.sleep(SAMPLE_SECONDS * len(inputs))
        loss = mse_loss(model(inputs), targets)
        if not loader.backward(loss):
            continue
        optimizer.step()
        log.committed(loader.step, loader.indices)
        if loader.rank == 0:
            log.step(loader.step, loader.world_size)

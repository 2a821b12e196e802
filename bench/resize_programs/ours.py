"""The training of the resize bench with hpctools.elastic: `ours.py LOG_FOLDER`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from model import BATCH, SAMPLE_SECONDS, SHARDS, Samples, StepLog, build
from torch.nn.functional import mse_loss

from hpctools import elastic

log = StepLog(Path(sys.argv[1]))
model, optimizer = build()
loader = elastic.Loader(model, optimizer, Samples(), batch_size=BATCH, epochs=1, shards=SHARDS)
for inputs, targets in loader:
    time.sleep(SAMPLE_SECONDS * len(inputs))
    loss = mse_loss(model(inputs), targets)
    if not loader.backward(loss):
        continue
    optimizer.step()
    if loader.rank == 0:
        log.step(loader.step, loader.world_size)

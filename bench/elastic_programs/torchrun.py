"""The training of the benches under torchrun: DDP, the state in a file: `torchrun.py LOG_FOLDER`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from model import BATCH, SAMPLE_SECONDS, Samples, StepLog, build
from torch import distributed
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

STEPS_BETWEEN_SAVES = 5

log = StepLog(Path(sys.argv[1]))
saved = Path(sys.argv[1]) / "state.pt"
distributed.init_process_group("gloo")
rank, world = distributed.get_rank(), distributed.get_world_size()
model, optimizer = build()
data = Samples()
step = 0
if saved.exists():
    state = torch.load(saved, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
replicated = DistributedDataParallel(model)
while True:
    first = step * BATCH % (len(data) - BATCH)
    own = [data[index] for index in range(first + rank, first + BATCH, world)]
    _, inputs, targets = torch.utils.data.default_collate(own)
    time.sleep(SAMPLE_SECONDS * len(own))
    optimizer.zero_grad()
    loss = mse_loss(replicated(inputs), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    step += 1
    if rank == 0:
        log.step(step, world)
        if step % STEPS_BETWEEN_SAVES == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, saved.with_suffix(".new"))
            saved.with_suffix(".new").replace(saved)

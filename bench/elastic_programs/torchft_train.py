"""The training of the benches with torchft: each worker a replica group of its own.

    torchft_train.py LOG_FOLDER LIGHTHOUSE NAME

SIGTERM is heeded between two steps, as a planned departure.
"""

from __future__ import annotations

import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from model import BATCH, SAMPLE_SECONDS, Samples, StepLog, build
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.nn.functional import mse_loss
from torchft import (  # type: ignore[import-not-found]
    DistributedDataParallel,
    Manager,
    Optimizer,
    ProcessGroupGloo,
)

LIMIT = timedelta(seconds=20)
wanted: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: wanted.append(number))
log = StepLog(Path(sys.argv[1]))
model, optimizer = build()


def load_state(state: dict[str, Any]) -> None:
    """Become what another replica group has."""
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


def own_state() -> dict[str, Any]:
    """What another replica group needs."""
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
manager = Manager(
    pg=ProcessGroupGloo(timeout=LIMIT),
    load_state_dict=load_state,
    state_dict=own_state,
    min_replica_size=1,
    timeout=LIMIT,
    quorum_timeout=LIMIT,
    connect_timeout=LIMIT,
    rank=0,
    world_size=1,
    store_addr="127.0.0.1",
    store_port=store.port,
    lighthouse_addr=sys.argv[2],
    replica_id=sys.argv[3],
    hostname="127.0.0.1",
)
replicated = DistributedDataParallel(manager, model)
managed = Optimizer(manager, optimizer)
data = Samples()
while not wanted:
    managed.zero_grad()
    step, rank, world = manager.current_step(), manager.participating_rank(), manager.num_participants()
    first = step * BATCH % (len(data) - BATCH)
    own = [data[index] for index in range(first + (rank or 0), first + BATCH, world)]
    _, inputs, targets = torch.utils.data.default_collate(own)
    time.sleep(SAMPLE_SECONDS * len(own))
    loss = mse_loss(replicated(inputs), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    managed.step()
    if rank == 0 and manager.current_step() > step:
        log.step(manager.current_step(), world)
manager.shutdown(wait=False)

"""A tiny training that can fall ill: its own ledger tells which steps went by, and in which process."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path

import torch
from torch import nn

from hpctools import elastic

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--delay", type=float, default=0.02, help="seconds per shard")
parser.add_argument("--nan-sample", type=int, help="the loss of a batch with this sample is not a number")
parser.add_argument("--hang-at", type=int, help="b1's first process stops in this step")
parser.add_argument("--crash-at", type=int, help="b1 raises in this step")
parser.add_argument("--crashes", type=int, default=1, help="so many times")
parser.add_argument("--slow", type=float, default=0.0, help="further seconds per shard for b1")
parser.add_argument("--say", default="", help="printed in step 5 by the first worker")
args = parser.parse_args()

BATCH = 4
worker = os.environ["HPCTOOLS_WORKER"]
is_ill = worker.startswith("b1.")
ledger = (args.out / f"{worker}.jsonl").open("a", buffering=1)


class Samples:
    def __len__(self) -> int:
        return args.steps * BATCH

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        return index, torch.full((3,), float(index) / len(self))


def fall_ill(step: int) -> None:
    """What `--hang-at` and `--crash-at` ask for, only as often as they ask for it."""
    if not is_ill:
        return
    if step == args.hang_at and worker == "b1.0.0":
        time.sleep(300)
    if step == args.crash_at and len(list(args.out.glob("crash-*"))) < args.crashes:
        (args.out / f"crash-{worker}").touch()
        raise ValueError("cosmic ray")
    time.sleep(args.slow)


torch.manual_seed(1)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = elastic.Loader(model, optimizer, Samples(), batch_size=BATCH, epochs=1, seed=3, shards=4)
rehearsed = False  # the first batch is for practice
for indices, inputs in loader:
    if rehearsed:
        fall_ill(loader.step + 1)
    time.sleep(args.delay)
    loss = (model(inputs) - 1.0).square().mean()
    if rehearsed and args.nan_sample in indices.tolist():
        loss = loss * math.nan
    rehearsed = True
    if not loader.backward(loss):
        continue
    optimizer.step()
    optimizer.zero_grad()
    if loader.step == 5 and args.say and loader.rank == 0:
        print(args.say, flush=True)
    ledger.write(
        json.dumps(
            {
                "step": loader.step,
                "loss": loader.loss if math.isfinite(loader.loss) else None,
                "samples": loader.indices,
                "pid": os.getpid(),
                "worker": worker,
                "generation": loader.generation,
            }
        )
        + "\n"
    )
finite = all(bool(torch.isfinite(each).all()) for each in model.parameters())
ledger.write(json.dumps({"final": True, "finite": finite, "worker": worker}) + "\n")

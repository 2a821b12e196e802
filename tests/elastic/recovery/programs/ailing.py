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
parser.add_argument("--nan-at", type=int, help="the loss of this step is not a number")
parser.add_argument("--without", type=int, help="this step's batch is left out")
parser.add_argument(
    "--spike-at", type=int, help="after this step all weights are a hundred times larger, once"
)
parser.add_argument("--bad-batch", type=int, help="the loss of this step, and so its gradient, is too large")
parser.add_argument("--bad-at", type=int, help="in this step the first worker reports a low accuracy, once")
parser.add_argument("--ill", default="b1.", help="who falls ill, by the beginning of its name")
parser.add_argument("--hang-at", type=int, help="who is ill stops in this step, in its first process")
parser.add_argument("--crash-at", type=int, help="who is ill raises in this step, every time")
parser.add_argument("--slow", type=float, default=0.0, help="further seconds per shard for who is ill")
parser.add_argument("--say", default="", help="printed by the first worker ...")
parser.add_argument("--say-when", type=Path, help="... once this file exists")
args = parser.parse_args()

BATCH = 4
worker = os.environ.get("HPCTOOLS_WORKER", "lone")
is_ill = worker.startswith(args.ill)
ledger = (args.out / f"{worker}.jsonl").open("a", buffering=1)


class Samples:
    def __len__(self) -> int:
        return args.steps * BATCH

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        return index, torch.full((3,), float(index) / len(self))


def fall_ill(step: int) -> None:
    """What the options ask for in a pass."""
    if not is_ill:
        return
    if step == args.hang_at and worker.endswith(".0"):
        time.sleep(300)
    if step == args.crash_at:
        raise ValueError("cosmic ray")
    time.sleep(args.slow)


def go_bad(step: int) -> None:
    """What the options ask for after a step."""
    if step == args.spike_at and "spike" not in happened:
        happened.add("spike")
        with torch.no_grad():
            for each in model.parameters():
                each.mul_(100)
    if loader.rank == 0 and (step <= 5 or (step == args.bad_at and "bad" not in happened)):
        loader.report(accuracy=0.9 if step <= 5 else 0.1)
        happened.add("" if step <= 5 else "bad")
    if loader.rank == 0 and args.say_when and args.say_when.exists() and "said" not in happened:
        happened.add("said")
        print(args.say, flush=True)


torch.manual_seed(1)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = elastic.Loader(model, optimizer, Samples(), batch_size=BATCH, epochs=1, seed=3, shards=4)
if args.without:
    loader._roll_back(0, [args.without])
rehearsed = worker == "lone"  # else the first batch is for practice
happened: set[str] = set()
for _, inputs in loader:
    if rehearsed:
        fall_ill(loader.step + 1)
    time.sleep(args.delay)
    loss = (model(inputs) - 1.0).square().mean()
    if rehearsed and args.nan_at == loader.step + 1:
        loss = loss * math.nan
    if rehearsed and args.bad_batch == loader.step + 1:
        loss = loss * 1e4
    rehearsed = True
    if not loader.backward(loss):
        continue
    optimizer.step()
    optimizer.zero_grad()
    go_bad(loader.step)
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

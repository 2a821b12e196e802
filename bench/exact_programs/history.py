"""A short training that writes down what it was fed and what came of it; see bench/histories.py."""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from bench.one_gpu import pretend_own_host
from hpctools import elastic

SAMPLES, BATCH, SHARDS, EPOCHS, WIDTH = 1590, 24, 8, 2, 8
COPY_STEPS = 4
STEP_SECONDS, LATE_STEP_SECONDS, LAST_STEP_SECONDS = 0.02, 0.3, 1.5

parser = argparse.ArgumentParser()
parser.add_argument("out", type=Path)
parser.add_argument("--data", choices=("map", "streams"), default="map")
parser.add_argument("--num-workers", type=int, default=0)
parser.add_argument("--mode", choices=("exact", "fast", "sharded"), default="exact")
parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
parser.add_argument("--own-host", action="store_true", help="see bench/one_gpu.py")
args = parser.parse_args()
worker = os.environ.get("HPCTOOLS_WORKER", "lone")
hurry = args.out / "hurry"


def own_device() -> torch.device:
    """Where we compute: of several GPUs each of the first nodes has one of its own."""
    if args.device == "cpu":
        return torch.device("cpu")
    torch.use_deterministic_algorithms(True)
    node = int(os.environ.get("SLURMD_NODENAME", "n1")[1:])
    return torch.device("cuda", (node - 1) % torch.cuda.device_count())


def sample(number: int) -> tuple[int, torch.Tensor, torch.Tensor]:
    """A sample with noise from each generator."""
    noise = random.random() + float(numpy.random.rand())  # noqa: S311
    inputs = torch.sin(torch.arange(WIDTH) * (number + 1.0)) + 0.1 * noise * torch.randn(WIDTH)
    return number, inputs, inputs[:3].sum().reshape(1)


class Samples:
    """Map-style."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        return sample(index)


class Stream:
    """One virtual shard's samples, in order; every third stream is shorter."""

    def __init__(self, index: int, of: int) -> None:
        self._numbers = range(index, SAMPLES // (2 if index % 3 == 1 else 1), of)
        self._place = 0

    def state_dict(self) -> dict[str, int]:
        """How many were read."""
        return {"place": self._place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from there."""
        self._place = state["place"]

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> tuple[int, torch.Tensor, torch.Tensor]:
        if self._place >= len(self._numbers):
            raise StopIteration
        self._place += 1
        return sample(self._numbers[self._place - 1])


class Streams:
    """One stream for each virtual shard."""

    def shard(self, index: int, of: int) -> Stream:
        """Stream number `index`."""
        return Stream(index, of)


class Model(nn.Module):
    """With dropout, and a buffer that every forward pass changes; in fast mode, where both depend on who
    computes which samples together, without: then results differ by rounding alone.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.layers = nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Dropout(3 * rate), nn.Linear(16, 1))
        self.mean: torch.Tensor
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """One number a sample."""
        self.mean += self.rate * (inputs.mean(0) - self.mean)
        prediction: torch.Tensor = self.layers(inputs - self.mean)
        return prediction


def pause(step: int, fed: set[int]) -> None:
    """Once a step: as long as a step takes, until the history is through longer in the second half, and again
    in its second half, so that also a slow machine has done all by the end.
    """
    if step not in fed and not hurry.exists():
        fed.add(step)
        half = SAMPLES // BATCH
        late = LATE_STEP_SECONDS if step < half + half // 2 else LAST_STEP_SECONDS
        time.sleep(STEP_SECONDS if step < half else late)


@dataclass
class Training:
    """What the loop uses."""

    loader: elastic.Loader
    model: Callable[[], nn.Module]
    optimizer: torch.optim.Optimizer
    scheduler: Any


def whole(data: Any, device: torch.device, **options: Any) -> Training:
    """Of a model that every worker holds."""
    model = Model(0.1 if args.mode == "exact" else 0.0).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    loader = elastic.Loader(model, optimizer, data, mode=args.mode, scheduler=scheduler, **options)
    return Training(loader, lambda: model, optimizer, scheduler)


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model of which every worker holds a part."""
    model = Model(0.1)
    fully_shard(model.layers[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def sharded(data: Any, **options: Any) -> Training:
    """Of that, in exact mode."""
    loader = elastic.ShardedLoader(build, data, mode="exact", copy_steps=COPY_STEPS, **options)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(loader.optimizer, 0.99)
    loader.track("scheduler", scheduler)
    return Training(loader, lambda: loader.model, loader.optimizer, scheduler)


def train(note: Any) -> None:
    """The whole training."""
    torch.manual_seed(1 if worker in ("lone", "b0.0.0") else os.getpid())
    device = own_device()
    if args.own_host:
        pretend_own_host()
    data = Samples() if args.data == "map" else Streams()
    sizes: dict[str, Any] = {"batch_size": BATCH, "epochs": EPOCHS, "shards": SHARDS, "seed": 7}
    sizes["num_workers"] = args.num_workers
    training = sharded(data, **sizes) if args.mode == "sharded" else whole(data, device, **sizes)
    loader, paused = training.loader, set[int]()
    for _ in range(EPOCHS):
        for numbers, inputs, targets in loader:
            epoch = loader.epoch
            note(fed=numbers.tolist(), step=loader.step + 1, epoch=epoch)
            pause(loader.step, paused)
            prediction = training.model()(inputs.to(device))
            if not loader.backward(nn.functional.mse_loss(prediction, targets.to(device))):
                continue
            training.optimizer.step()
            training.scheduler.step()
            training.optimizer.zero_grad()
            drawn = torch.rand(1).item() + random.random()  # noqa: S311
            result = {"loss": loader.loss.hex(), "drawn": drawn, "committed": loader.indices}
            where = {"world": loader.world_size, "generation": loader.generation, "at": time.monotonic()}
            note(step=loader.step, epoch=epoch, over=loader.reduce_backend, **where, **result)
    tensors = training.model().state_dict().items()
    weights = {
        name: (each.full_tensor() if isinstance(each, DTensor) else each).tolist() for name, each in tensors
    }
    note(final=weights, lr=training.scheduler.get_last_lr())


with (args.out / f"{worker}.jsonl").open("a", buffering=1) as ledger:
    train(lambda **values: ledger.write(json.dumps({"worker": worker, "pid": os.getpid(), **values}) + "\n"))

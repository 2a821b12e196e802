"""One worker that trains in turn with elastic.Loader (fast mode) and with DistributedDataParallel.

Both have the same model, optimizer, data and global batch, in the same processes, so that whatever else the
machine does meets both. Rank 0 writes the seconds of each block of steps.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from bench.one_gpu import pretend_own_host
from hpctools import elastic

BATCH = 48
WARM_UP = 3

parser = argparse.ArgumentParser()
parser.add_argument("out", type=Path)
parser.add_argument("--delay", type=float, default=0.0, help="seconds of sleep per sample, in the loop")
parser.add_argument("--blocks", type=int, default=10)
parser.add_argument("--steps", type=int, default=10, help="of a block")
parser.add_argument("--width", type=int, default=1536, help="of the model's layers")
parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
parser.add_argument("--own-host", action="store_true", help="see bench/one_gpu.py")
args = parser.parse_args()


class Samples(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Inputs of 256 numbers and a label of ten."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self._inputs = torch.randn(1000, 256, generator=generator)
        self._labels = torch.randint(10, (1000,), generator=generator)

    def __len__(self) -> int:
        return 1 << 17

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._inputs[index % 1000], self._labels[index % 1000]


def own_device() -> torch.device:
    """Where we compute: of several GPUs each of the first nodes has one of its own."""
    if args.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", (int(os.environ["SLURMD_NODENAME"][1:]) - 1) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def training_step(
    model: nn.Module, batch: list[torch.Tensor], backward: Callable[[torch.Tensor], object]
) -> None:
    """Forward and backward pass, with the sleep that stands for larger samples."""
    inputs, labels = (each.to(device) for each in batch)
    loss = nn.functional.cross_entropy(model(inputs), labels)
    time.sleep(args.delay * len(inputs))
    backward(loss)


def batches(data: Samples, rank: int, world: int) -> Iterator[list[torch.Tensor]]:
    """An ordinary distributed training's batches, without end."""
    sampler: DistributedSampler[int] = DistributedSampler(data, world, rank)
    loader = DataLoader(data, BATCH // world, sampler=sampler, drop_last=True)
    while True:
        yield from loader


def ours(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterator[list[torch.Tensor]]) -> None:
    """One step with the loader."""
    training_step(model, next(batches), loader.backward)
    optimizer.step()
    optimizer.zero_grad()


def theirs(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterator[list[torch.Tensor]]) -> None:
    """One step with DDP."""
    training_step(model, next(batches), torch.Tensor.backward)
    optimizer.step()
    optimizer.zero_grad()


def seconds(step: Callable[[], None], steps: int) -> float:
    """How long some steps take, begun by all ranks together."""
    torch.distributed.barrier()
    begun = time.monotonic()
    for _ in range(steps):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.monotonic() - begun


def begin_theirs() -> None:
    """DDP's own group: nccl where each of us has a GPU, as ordinary trainings have it."""
    backend = loader.reduce_backend
    # What the loader has set for the process makes nccl's waits block the host, which DDP need not.
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "0"
    store = f"file://{args.out}/store"
    torch.distributed.init_process_group(backend, store, rank=loader.rank, world_size=loader.world_size)


device = own_device()
if args.own_host:
    pretend_own_host()
torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(256, args.width),
    nn.ReLU(),
    nn.Linear(args.width, args.width),
    nn.ReLU(),
    nn.Linear(args.width, args.width),
    nn.ReLU(),
    nn.Linear(args.width, 10),
).to(device)
other = copy.deepcopy(model)
optimizers = [torch.optim.SGD(each.parameters(), lr=1e-3, momentum=0.9) for each in (model, other)]
data = Samples()
loader = elastic.Loader(model, optimizers[0], data, batch_size=BATCH, epochs=1000, mode="fast")
own_batches = iter(loader)
first = next(own_batches)
training_step(model, first, loader.backward)  # the rehearsal; now we are in
first = next(own_batches)
begin_theirs()
ddp = DistributedDataParallel(other)
their_batches = batches(data, loader.rank, loader.world_size)
training_step(model, first, loader.backward)
optimizers[0].step()


def ours_once() -> None:
    """A step of ours."""
    ours(model, optimizers[0], own_batches)


def theirs_once() -> None:
    """A step of theirs."""
    theirs(ddp, optimizers[1], their_batches)


for step in (ours_once, theirs_once):
    seconds(step, WARM_UP)
found = [(seconds(ours_once, args.steps), seconds(theirs_once, args.steps)) for _ in range(args.blocks)]
if loader.rank == 0:
    told = {"seconds": found, "over": loader.reduce_backend}
    (args.out / "seconds.new").write_text(json.dumps(told))
    (args.out / "seconds.new").rename(args.out / "seconds.json")  # whole at once, since it is waited for
torch.distributed.barrier()
os._exit(0)

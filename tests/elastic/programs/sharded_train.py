"""A tiny sharded training that keeps a ledger of what it was fed and what was committed."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from sines import Sines, SineStreams
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from hpctools import elastic
from hpctools.elastic.sharded import keeping, moving, part_files, room

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--samples", type=int, default=1000)
parser.add_argument("--streams", action="store_true", help="the samples are read in order")
parser.add_argument("--steps", type=int, default=0, help="twice the first late one, of streams")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--delay", type=float, default=0.0, help="seconds per sample")
parser.add_argument("--slow", default="", help="the worker that takes four times as long")
parser.add_argument("--hurry", type=Path, help="no delay any more once this file exists")
parser.add_argument("--hold", type=float, default=0.5, help="seconds of a late step until the file exists")
parser.add_argument("--await-world", type=int, default=0, help="late steps wait for so many workers")
parser.add_argument("--width", type=int, default=33)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--clip", action="store_true")
parser.add_argument("--look", action="store_true", help="a forward pass before the optimizer's step")
parser.add_argument("--exact", action="store_true")
parser.add_argument("--mixed", action="store_true", help="the first and the last layer compute in bfloat16")
parser.add_argument("--shards", type=int, default=6)
parser.add_argument("--save-every", type=int, default=0, help="steps")
parser.add_argument("--copy-every", type=int, default=0, help="steps")
parser.add_argument("--folder", default="", help="of the checkpoints")
parser.add_argument("--poison", type=int, help="the loss of this step is no number")
parser.add_argument("--raise-in", default="", help="the place of the worker that raises in the awaited world")
parser.add_argument("--without", type=int, help="this step's batch is left out")
parser.add_argument("--no-room", action="store_true", help="old and new shards do not fit into memory")
parser.add_argument("--device", default="cpu")
parser.add_argument("--part-waits", action="store_true", help="a replica's parts, until somebody has to go")
parser.add_argument("--own-host", action="store_true", help="see bench/one_gpu.py")
args = parser.parse_args()
if args.own_host:
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from bench.one_gpu import pretend_own_host

    pretend_own_host()
if args.no_room:
    room.choose = lambda new, old, memory, places: room.Waiting(room.LOCAL, places[0].folder)
worker = os.environ.get("HPCTOOLS_WORKER", "lone")


def write_late(folder: Path, *told: Any) -> dict[str, Any]:
    (args.out / "writing").write_text(folder.name.removeprefix(".writing-step-")[:9])
    while loader._shard_keeper._give_up_at == math.inf:
        time.sleep(0.005)
    time.sleep(PART_SECONDS)
    return write_parts(folder, *told)


def carry_late(*told: Any) -> moving.Carried:
    """The others are through first, so that we are released before we know that we are through, too."""
    carried = carry(*told)
    time.sleep(PART_SECONDS / 3)
    return carried


carry = moving.carry
PART_SECONDS, write_parts = 1.5, part_files.write_parts  # longer than a process takes to end
if args.part_waits:
    keeping.LOST_SECONDS = 30.0
    if worker.startswith("r"):
        part_files.write_parts, moving.carry = write_late, carry_late
CLIPPED = 0.5
begun: set[int] = set()
ledger = (args.out / f"{worker}.jsonl").open("a", buffering=1)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(args.width, args.width, bias=False)  # the norm takes it away
        self.norm = nn.BatchNorm1d(args.width)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + nn.functional.dropout(torch.relu(self.norm(self.linear(inputs))), 0.1, self.training)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, args.width)
        self.layers = nn.ModuleList(Layer() for _ in range(args.layers))
        self.last = nn.Linear(args.width, 1)
        self.register_buffer("scale", torch.randn(args.width), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(inputs) * self.scale
        for layer in self.layers:
            hidden = layer(hidden)
        return self.last(hidden.to(self.last.weight.dtype))


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Model()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model, mesh=mesh, mp_policy=mixed if args.mixed else MixedPrecisionPolicy())
    decayed = [each for each in model.parameters() if each.ndim > 1]
    others = [each for each in model.parameters() if each.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return model, torch.optim.AdamW(groups, lr=1e-2)


def note(**values: object) -> None:
    ledger.write(json.dumps({"worker": worker, "pid": os.getpid(), **values}) + "\n")


def pause(samples: int) -> None:
    """As long as the samples would take; in the second half long steps, until the scenario is through."""
    if loader.world_size == args.await_world:
        reached.touch()  # also for a worker that is started again
    samples *= 4 if worker == args.slow else 1
    late = args.hurry is not None and loader.step >= (loader.total_steps or args.steps) // 2
    is_first = loader.step not in begun
    begun.add(loader.step)
    end = time.monotonic() + ((args.hold if is_first else 0.0) if late else args.delay * samples)
    while not (args.hurry is not None and args.hurry.exists()):
        if time.monotonic() > end and not (late and still_awaited()):
            return
        time.sleep(0.005)


def still_awaited() -> bool:
    """Whether the size that the scenario begins with was never there, and no resize is waiting for us."""
    session = loader._session
    is_called = max(session._orders.commits, default=0) > loader.generation or session._must_rejoin()
    return args.await_world > 0 and not reached.exists() and not is_called


reached = args.out / "reached"
checkpoint = elastic.Checkpoint(folder=args.folder, every_seconds=0, every_steps=args.save_every)
loader = elastic.ShardedLoader(
    build,
    SineStreams(args.samples) if args.streams else Sines(args.samples),
    batch_size=48,
    epochs=args.epochs,
    seed=7,
    shards=args.shards,
    checkpoint=checkpoint,
    copy_steps=args.copy_every,
    mode="exact" if args.exact else "fast",
    device=args.device,
)
scheduler = torch.optim.lr_scheduler.ExponentialLR(loader.optimizer, 0.99)
loader.track("scheduler", scheduler)
if args.without:
    loader._roll_back(0, [args.without])
counted: dict[tuple[int, int], dict[int, list[int]]] = {}
for epoch in range(args.epochs):
    for indices, inputs, targets in loader:
        if (
            piece := loader._fed
        ) is not None and piece.samples:  # a step that is begun again is so in another generation
            counted.setdefault((loader.generation, loader.step), {})[piece.number] = indices.tolist()
        note(fed=indices.tolist(), step=loader.step, epoch=epoch)
        pause(len(inputs))
        if args.raise_in and worker.startswith(args.raise_in) and loader.world_size == args.await_world:
            raise ValueError("no such layer")
        loss = nn.functional.mse_loss(loader.model(inputs.to(args.device)), targets.to(args.device))
        if args.poison == loader.step + 1:
            loss = loss * float("nan")
        if not loader.backward(loss):
            continue
        norm = 0.0
        if args.look:
            with torch.no_grad():
                loader.model.eval()(torch.ones(2, 16))
            loader.model.train()
        if args.clip and args.exact:
            norm = loader.clip_grad_norm_(CLIPPED).item()
        elif args.clip:
            nn.utils.clip_grad_norm_(loader.model.parameters(), 1.0)
        loader.optimizer.step()
        scheduler.step()
        loader.optimizer.zero_grad()
        note(
            step=loader.step,
            epoch=epoch,
            committed=loader.indices,
            counted=counted.get((loader.generation, loader.step - 1)) if args.streams else {},
            loss=loader.loss,
            norm=norm,
            measured=loader._sharded_sum.norm,
            generation=loader.generation,
            world=loader.world_size,
            rank=loader.rank,
            over=loader.reduce_backend,
            at=time.monotonic(),
        )
        if loader.rank == 0:
            print(f"step {loader.step} loss {loader.loss:.6f} world {loader.world_size}")
weights = {
    name: (each.full_tensor() if hasattr(each, "full_tensor") else each).tolist()
    for name, each in loader.model.state_dict().items()
}
if loader.rank == 0:
    note(final=weights, lr=scheduler.get_last_lr())

"""A tiny training that keeps a ledger of what it was fed and what was committed, and can misbehave."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--samples", type=int, default=1000)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--delay", type=float, default=0.0, help="seconds per sample")
parser.add_argument("--hurry", type=Path, help="no delay any more once this file exists")
parser.add_argument("--raise-at-import", action="store_true")
parser.add_argument("--replica-raises", action="store_true")
parser.add_argument("--slow-start", type=float, default=0.0, help="seconds, for replicas")
parser.add_argument("--die-linking", type=Path, help="marker: the first replica dies while it links")
parser.add_argument("--buffer", type=int, default=0, help="megabytes that the state holds besides")
parser.add_argument("--slow-end", type=int, default=0, help="seconds without a sign of life after the loop")
parser.add_argument("--end", type=Path, help="the program does not end before this file exists")
parser.add_argument("--killed-at-end", action="store_true")
parser.add_argument("--save-every", type=int, help="steps from checkpoint to checkpoint")
parser.add_argument("--checkpoints", default="", help="their folder; the run's own without")
parser.add_argument("--poison", type=int, help="the loss of this step is no number")
parser.add_argument("--raise-at", type=int, help="every worker raises in this step")
parser.add_argument("--same-start", action="store_true", help="all workers begin with the same weights")
parser.add_argument("--without", type=int, help="this step's batch is left out")
parser.add_argument("--hold-lock", choices=("start", "step"), help="all but b0 hold Python's lock then")
parser.add_argument("--num-workers", type=int, default=0)
parser.add_argument("--note-loads", action="store_true", help="which sample was loaded when, in out/loads")
parser.add_argument("--child", type=Path, help="a program that a worker starts in step 8, and submits then")
parser.add_argument("--chatty", type=Path, help="replicas print 4 MiB in a step once this file exists")
args = parser.parse_args()

inherited = dict(os.environ)
worker = os.environ.get("HPCTOOLS_WORKER", "lone")
is_replica = worker.startswith("r")
if args.raise_at_import or (args.replica_raises and is_replica):
    raise ValueError("no such corpus")

import no_compiler  # noqa: E402, F401
import torch  # noqa: E402
from sines import Sines  # noqa: E402
from torch import nn  # noqa: E402

from hpctools import elastic  # noqa: E402

if is_replica:
    time.sleep(args.slow_start)
if args.die_linking and is_replica and not args.die_linking.exists():
    from hpctools.elastic import links

    args.die_linking.touch()
    links.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(16, 33), nn.BatchNorm1d(33), nn.ReLU(), nn.Dropout(0.3), nn.Linear(33, 1)
        )
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("ballast", torch.zeros(args.buffer << 18), persistent=True)
        self.register_buffer("drift", torch.zeros(16), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.drift += 0.01 * inputs.mean(0)
        return self.layers(inputs + self.drift.clone())


class Noted(Sines):
    """Notes when a sample is loaded, whoever does so."""

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        with (args.out / "loads").open("a") as lines:
            lines.write(f"{index} {time.monotonic()}\n")
        return super().__getitem__(index)


LATE_STEP = 1.0
begun: set[int] = set()
ledger = (args.out / f"{worker}.jsonl").open("a", buffering=1)


def note(**values: object) -> None:
    ledger.write(json.dumps({"worker": worker, "pid": os.getpid(), **values}) + "\n")


def pause(samples: int) -> None:
    """As long as the samples would take; in the second half long steps, until the scenario is through."""
    late = args.hurry is not None and loader.step >= loader.total_steps // 2
    is_first = loader.step not in begun
    begun.add(loader.step)
    end = time.monotonic() + ((LATE_STEP if is_first else 0.0) if late else args.delay * samples)
    while time.monotonic() < end and not (args.hurry is not None and args.hurry.exists()):
        time.sleep(0.005)


def hold_lock(seconds: float) -> None:
    """Compute in one call into C, which keeps the interpreter's lock; the channel's threads stand still."""
    end = time.monotonic() + seconds
    any(map(end.__lt__, iter(time.monotonic, None)))  # no bytecode runs until the time is over


def chat() -> None:
    """Print more than fits into any pipe, once."""
    if args.chatty is not None and is_replica and args.chatty.exists():
        os.write(2, (b"." * 127 + b"\n") * (4 << 13))
        args.chatty = None


def start_child() -> None:
    """As a script does, and as a job that was submitted from within this one."""
    for environ in (None, {**inherited, "SLURM_JOB_ID": "4711"}):
        done = subprocess.run([sys.executable, args.child], env=environ, capture_output=True, text=True)
        note(child=done.stdout.split(), code=done.returncode, errors=done.stderr)


# Workers begin with different weights: only the state that they receive can make them the same.
torch.manual_seed(1 if args.same_start or worker in ("lone", "b0.0.0") else os.getpid())
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
loader = elastic.Loader(
    model,
    optimizer,
    (Noted if args.note_loads else Sines)(args.samples),
    batch_size=48,
    epochs=args.epochs,
    seed=7,
    shards=12,
    scheduler=scheduler,
    num_workers=args.num_workers,
    checkpoint=None if args.save_every is None else elastic.Checkpoint(args.checkpoints, 0, args.save_every),
)
if args.hold_lock == "start" and not worker.startswith("b0"):
    hold_lock(5.0)
if args.without:
    loader._roll_back(0, [args.without])
for epoch in range(args.epochs):
    for indices, inputs, targets in loader:
        note(fed=indices.tolist(), step=loader.step, epoch=epoch, rank=loader.rank, of=loader.world_size)
        pause(len(inputs))
        chat()
        if args.child is not None and loader.step == 8 and loader.rank == 0:
            start_child()
            args.child = None
        if args.hold_lock == "step" and not worker.startswith("b0") and loader.step == 8:
            args.hold_lock = hold_lock(5.0)
        loss = nn.functional.mse_loss(model(inputs), targets)
        if args.raise_at == loader.step + 1:
            raise ValueError("no such layer")
        if args.poison == loader.step + 1:
            loss = loss * float("nan")
        if not loader.backward(loss):
            continue
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        note(
            step=loader.step,
            epoch=epoch,
            committed=loader.indices,
            loss=loader.loss.hex(),
            generation=loader.generation,
            world=loader.world_size,
            rank=loader.rank,
            at=time.monotonic(),
        )
        if loader.rank == 0:
            print(f"step {loader.step} loss {loader.loss:.6f} world {loader.world_size}")
weights = {name: tensor.tolist() for name, tensor in model.state_dict().items() if name != "ballast"}
note(final=weights, lr=scheduler.get_last_lr())
ctypes.PyDLL(None).sleep(args.slow_end)  # a PyDLL keeps the interpreter's lock, as its shutdown does
while args.end is not None and not args.end.exists():
    time.sleep(0.005)
if args.killed_at_end:
    os.kill(os.getpid(), signal.SIGKILL)

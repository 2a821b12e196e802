"""A script for torchrun that saves its own checkpoints: torch's DDP, and one function of hpctools if there.

    torchrun --standalone --nproc-per-node 2 restart_train.py --save run.pt
    hp-submit --nodes 1:4 -- torchrun restart_train.py --save run.pt

With hp-submit it runs in restart mode: it is started anew whenever the number of nodes changes, and goes on
from what it has saved. Scripts written for HyperPod's elastic training run with their own import.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from charlm import CharTransformer, Windows, arguments
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset

try:
    from hpctools.elastic import elastic_event_detected
except ImportError:  # plain torchrun, on a machine without hpctools

    def elastic_event_detected() -> bool:
        return False


SAVE_EVERY = 50


class Position:
    """Where the training is: which samples of which epoch are done, whatever the number of ranks."""

    def __init__(self) -> None:
        self.epoch = 0
        self.samples = 0
        self.steps = 0


def save(path: Path, model: DistributedDataParallel, optimizer: torch.optim.Optimizer, at: Position) -> None:
    """Rank 0 writes; the file appears as a whole; nobody goes on, or ends, before it is there."""
    if dist.get_rank() == 0:
        new = path.with_suffix(".new")
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "at": vars(at)}
        torch.save(state, new)
        new.replace(path)
    dist.barrier()


def load(path: Path, model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> Position:
    """Every rank reads what was saved last; nothing, when nothing was."""
    at = Position()
    if path.exists():
        state = torch.load(path, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        vars(at).update(state["at"])
    return at


def batches(data: Windows, options: argparse.Namespace, at: Position) -> DataLoader:
    """What is left of the epoch, dealt out to the ranks that there are now."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(options.seed + at.epoch))
    rest = Subset(data, order[at.samples :].tolist())
    return DataLoader(
        rest, options.batch // dist.get_world_size(), sampler=DistributedSampler(rest, shuffle=False)
    )


def train(options: argparse.Namespace) -> None:
    data = Windows(options.text, options.context, options.batch * options.steps)
    model = DistributedDataParallel(
        CharTransformer(options.size, options.layers, options.context, options.dropout)
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    at = load(options.save, model, optimizer)
    first = dist.get_rank() == 0
    if first:
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        print(f"{dist.get_world_size()} ranks go on after step {at.steps} (restarts: {restarts})")
    while at.epoch < options.epochs:
        for inputs, targets in batches(data, options, at):
            loss = cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(options.delay * len(inputs))
            at.samples += len(inputs) * dist.get_world_size()
            at.steps += 1
            if first and at.steps % 10 == 0:
                print(f"step {at.steps} loss {loss.item():.4f}")
            event = elastic_event_detected()
            if event or at.steps % SAVE_EVERY == 0:
                save(options.save, model, optimizer, at)
            if event:
                return
        at.epoch, at.samples = at.epoch + 1, 0
    save(options.save, model, optimizer, at)
    if first:
        print(f"done after {at.steps} steps")


if __name__ == "__main__":
    chosen = arguments()
    chosen.save = chosen.save or Path("restart_train.pt")
    torch.manual_seed(chosen.seed)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(chosen)
    dist.destroy_process_group()

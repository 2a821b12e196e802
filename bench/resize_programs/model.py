"""What both trainings of the resize bench train: 5 million parameters, in short steps."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import torch
from torch import nn

SAMPLES = 1 << 20
BATCH = 24
SHARDS = 12
WIDTH = 1118  # four layers of it: 5.0 million parameters
SAMPLE_SECONDS = 0.004
"""Slept for each sample, where a GPU would compute: two cores cannot show that more workers are faster."""


class Samples(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Endless work: vectors that follow from their index."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.full((WIDTH,), 1.0 / (index + 1))
        return inputs, inputs


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model and its optimizer, whose state is 60 MB together."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(4)]
    model = nn.Sequential(*layers)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4)


class StepLog:
    """A line for each step that has ended: who, how many, when (seconds of the machine's clock)."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / f"{os.getpid()}.jsonl").open("a", buffering=1)

    def step(self, number: int, world: int) -> None:
        """A step has ended."""
        self._file.write(json.dumps({"step": number, "world": world, "at": time.monotonic()}) + "\n")

"""A small training in this process, whose every number can be compared."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import nn

from hpctools import elastic


class Noisy:
    """Map-style samples with noise from every generator there is."""

    def __init__(self, length: int = 50) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        noise = random.random() + float(np.random.rand())
        return index, torch.sin(torch.arange(6) * (index + 1.0)) + torch.randn(6) * noise


class Readings:
    """One stream of a file that is read in order; some are longer than others."""

    def __init__(self, shard: int, of: int, length: int) -> None:
        self._numbers = range(shard, length, of) if shard != 1 else range(shard, length // 2, of)
        self._place = 0
        self._epoch = 0
        self.opened = self.reads = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def state_dict(self) -> dict[str, int]:
        return {"place": self._place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._place = state["place"]

    def __iter__(self) -> Readings:
        self.opened += 1
        return self

    def __next__(self) -> tuple[int, torch.Tensor]:
        if self._place >= len(self._numbers):
            raise StopIteration
        number = self._numbers[self._place] + 1000 * self._epoch
        self._place += 1
        self.reads += 1
        return number, torch.sin(torch.arange(6) * (number + 1.0)) + 0.1 * torch.randn(6)


class File:
    """A data set of streams."""

    def __init__(self, length: int = 50) -> None:
        self.length = length

    def shard(self, index: int, of: int) -> Readings:
        return Readings(index, of, self.length)

    def numbers(self, of: int) -> list[int]:
        """All samples of an epoch."""
        return sorted(number for shard in range(of) for number in Readings(shard, of, self.length)._numbers)


class Centred(nn.Module):
    """A running mean, also of a single sample."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(7))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean += 0.1 * (inputs.detach().mean(0) - self.mean)
        return inputs - self.mean.clone()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 7), Centred(), nn.Dropout(0.2), nn.Linear(7, 1))


def train(dataset: Any, epochs: int = 2, **options: Any) -> tuple[list[Any], list[float], list[torch.Tensor]]:
    """The samples that were fed (by epoch and piece), the losses, and the weights at the end."""
    trained = model()
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
    settings = {"batch_size": 8, "shards": 3, "seed": 4, **options}
    loader = elastic.Loader(trained, optimizer, dataset, epochs=epochs, **settings)
    fed, losses = [], []
    for epoch in range(epochs):
        for numbers, inputs in loader:
            fed.append((epoch, numbers.tolist()))
            if not loader.backward(trained(inputs).square().mean()):
                continue
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loader.loss)
    return fed, losses, [each.detach().clone() for each in trained.state_dict().values()]

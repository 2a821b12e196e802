"""The data set of the test trainings."""

from __future__ import annotations

import torch


class Sines:
    """So many samples of 16 numbers, each with its index and what is to be learnt of it."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        inputs = torch.sin(torch.arange(16) * (index + 1.0))
        return index, inputs, inputs[:4].sum().reshape(1)

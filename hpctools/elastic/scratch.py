"""Memory for a group's messages, used again at every step and by the group after it.

The first touch of a page costs more than sending it: some 0.8 ms for each MB on a busy node. A resize would
pay that for all of its memory at once, while everybody waits.
"""

from __future__ import annotations

import torch

BLOCK_BYTES = 64 << 20
"""What is not touched takes no memory."""
ALIGNMENT = 64
CPU = torch.device("cpu")


class Scratch:
    """Tensors by use, cut one after the other from blocks of the CPU's memory; on other devices as they come.

    Attributes:
        is_sound: whether no message may still come for any of it.
    """

    def __init__(self) -> None:
        self.is_sound = True
        self._tensors: dict[object, torch.Tensor] = {}
        self._blocks: list[torch.Tensor] = []
        self._used: list[int] = []

    def take(
        self, use: object, elements: int, dtype: torch.dtype, device: torch.device = CPU
    ) -> torch.Tensor:
        """Memory for one use, not initialised, shape (elements,); the same each time."""
        tensor = self._tensors.get(use)
        if tensor is None or tensor.numel() != elements:
            cut = self._cut if device.type == "cpu" else _fresh
            tensor = self._tensors[use] = cut(elements, dtype, device)
        return tensor

    def take_at_least(self, use: object, size: int, device: torch.device) -> torch.Tensor:
        """Bytes for one use, not initialised, shape (size or more,); the same until more are wanted."""
        known = self._tensors.get(use)
        wanted = size if known is None else max(size, known.numel())
        return self.take(use, wanted, torch.uint8, device)

    def spoil(self) -> None:
        """An operation was given up: what it was to fill may be written to at any time."""
        self.is_sound = False

    def inherit(self, other: Scratch) -> None:
        """Take over sound memory; nobody may use the other's tensors any more."""
        self._blocks, self._used = other._blocks, [0] * len(other._blocks)
        other._blocks, other._used, other._tensors = [], [], {}

    def _cut(self, elements: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        size = elements * dtype.itemsize
        for place, block in enumerate(self._blocks):
            begin = self._used[place]
            if begin + size <= block.numel():
                self._used[place] = -(-(begin + size) // ALIGNMENT) * ALIGNMENT
                return block[begin : begin + size].view(dtype)
        self._blocks.append(torch.empty(max(size, BLOCK_BYTES), dtype=torch.uint8))
        self._used.append(0)
        return self._cut(elements, dtype, device)


def _fresh(elements: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty(elements, dtype=dtype, device=device)

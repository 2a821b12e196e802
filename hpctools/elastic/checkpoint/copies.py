"""The state in memory that the training does not touch: copied quickly between two steps, written later."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch

from hpctools.elastic.checkpoint.structure import join, split


class HostCopy:
    """One copy of a state on the CPU; its memory is used again by the next `take`.

    Attributes:
        tensors: by name, on the CPU.
        skeleton: everything else.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.skeleton: Any = None

    def take(self, state: Mapping[str, Any]) -> None:
        """Copy a state; tensors of a GPU through pinned memory, so that the copies overlap."""
        self.prepared(state)()

    def prepared(self, state: Mapping[str, Any]) -> Callable[[], None]:
        """What `take` does in two parts: until the second one is called we hold what we held before.

        Raises:
            Exception: there is no memory for it, or something in it cannot be copied.
        """
        living, skeleton = split(state)
        skeleton = copy.deepcopy(skeleton)
        tensors = {name: self._room_for(name, tensor) for name, tensor in living.items()}
        return lambda: self._write(living, tensors, skeleton)

    def _write(
        self, living: Mapping[str, torch.Tensor], tensors: dict[str, torch.Tensor], skeleton: Any
    ) -> None:
        self.tensors, self.skeleton = tensors, skeleton
        for name, tensor in living.items():
            self.tensors[name].copy_(tensor, non_blocking=True)
        for device in {each.device for each in living.values() if each.is_cuda}:
            # Not for all that the GPU does: a collective may be waiting there for a worker that is lost.
            torch.cuda.current_stream(device).synchronize()

    def state(self) -> Any:
        """What was copied, copied once more: torch's optimizers keep what they load, and train it on."""
        return join(copy.deepcopy(self.skeleton), {name: each.clone() for name, each in self.tensors.items()})

    def _room_for(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        known = self.tensors.get(name)
        if known is not None and (known.shape, known.dtype) == (tensor.shape, tensor.dtype):
            return known
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)

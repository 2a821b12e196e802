"""What a model changes and its own `state_dict` leaves out: buffers with `persistent=False`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

NAME = "unsaved buffers"
"""Of that part of a training's state."""


class UnsavedBuffers:
    """A model's buffers that are no part of its `state_dict`, as a part of the training's state.

    They are left out where they can be computed anew, as a mask or a table of angles; but nobody tells which
    of them a forward pass has changed since. So all of them move with the state.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def __bool__(self) -> bool:
        """Whether there are any."""
        return any(True for _ in self._places())

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The living tensors, by name."""
        return {name: buffer for name, _, _, buffer in self._places()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what is there; one whose shape has changed in a forward pass is made anew."""
        for name, module, key, buffer in self._places():
            given = state.get(name)
            if given is not None and given.shape == buffer.shape:
                buffer.copy_(given)
            elif given is not None:
                module._buffers[key] = given.to(buffer.device, buffer.dtype, copy=True)

    def _places(self) -> Iterator[tuple[str, nn.Module, str, torch.Tensor]]:
        for path, module in self._model.named_modules():
            for key in sorted(module._non_persistent_buffers_set):
                buffer = module._buffers.get(key)
                if buffer is not None:
                    yield f"{path}.{key}" if path else key, module, key, buffer

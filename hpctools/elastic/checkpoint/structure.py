"""A training's state as a flat dict of tensors and a skeleton, which holds everything else.

The names of the tensors are those under which torch Distributed Checkpoint itself stores a nest of dicts
(`model.0.weight`), so that any program can load a model from a checkpoint of ours:

    dcp.load({"model": model.state_dict()}, checkpoint_id=".../step-000000123")

The skeleton is written as `torch.save` does, into one more tensor, and read with `weights_only`, so that
reading it cannot run code.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import torch

from hpctools.elastic.containers import PLACE, mapped

SKELETON = "hpctools"

Shape = tuple[tuple[int, ...], torch.dtype]


def split(state: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], Any]:
    """The tensors by name, as they are (not copied), and the skeleton."""
    tensors: dict[str, torch.Tensor] = {}
    return tensors, _without(state, (), tensors)


def join(skeleton: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """The inverse of `split`."""
    if _is_place(skeleton):
        return tensors[skeleton[1]]
    return mapped(skeleton, lambda each, _: join(each, tensors))


def shapes(skeleton: Any) -> dict[str, Shape]:
    """Shape and dtype of each tensor that the skeleton has a place for."""
    found: dict[str, Shape] = {}

    def visit(value: Any) -> Any:
        if _is_place(value):
            found[value[1]] = (value[2], value[3])
            return value
        return mapped(value, lambda each, _: visit(each))

    visit(skeleton)
    return found


def packed(skeleton: Any) -> torch.Tensor:
    """The skeleton as a tensor of bytes, shape (size,)."""
    buffer = io.BytesIO()
    torch.save(skeleton, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def unpacked(data: torch.Tensor) -> Any:
    """The inverse of `packed`."""
    return torch.load(io.BytesIO(data.numpy().tobytes()), weights_only=True)


def _without(value: Any, path: tuple[str, ...], tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        name = _free_name(".".join(path), tensors)
        tensors[name] = value.detach()
        return (PLACE, name, tuple(value.shape), value.dtype)
    return mapped(value, lambda each, key: _without(each, (*path, str(key)), tensors))


def _free_name(name: str, taken: Mapping[str, object]) -> str:
    """Two paths may read the same, as {"a": {"b": 1}} and {"a.b": 1} do."""
    free, count = name, 1
    while free in taken or free == SKELETON:
        count += 1
        free = f"{name}#{count}"
    return free


def _is_place(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 4 and isinstance(value[0], str) and value[0] == PLACE

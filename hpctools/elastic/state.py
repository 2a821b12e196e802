"""The state of a training, moved between processes in memory: large tensors as they are, small ones packed.

The structure travels as `torch.save` writes it and is read with `weights_only`, so that no peer can make us
run code.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import torch

from hpctools.elastic.group import Group, await_all

SIZES, STRUCTURE, SMALL, LARGE = 11, 12, 13, 14
NOTE_SIZE, NOTE = 15, 16
LARGE_BYTES = 1 << 20
ALIGNMENT = 64


def send_state(group: Group, to: int, state: Mapping[str, Any]) -> None:
    """Send a nest of dicts, lists, tuples, plain values and tensors; blocks.

    Raises:
        RuntimeError: the receiver is gone.
    """
    tensors: list[torch.Tensor] = []
    structure = _bytes_of(_without_tensors(state, tensors))
    small, large = _by_size(tensors)
    packed = _packed(small)
    sizes = torch.tensor([structure.numel(), packed.numel()], dtype=torch.int64)
    works = [
        group.send(sizes, to, SIZES),
        group.send(structure, to, STRUCTURE),
        group.send(packed, to, SMALL),
    ]
    contiguous = [_raw(tensor) for tensor in large]
    works += [group.send(tensor, to, LARGE) for tensor in contiguous]
    await_all(works)


def receive_state(group: Group, sender: int) -> Any:
    """What `send_state` sends, in tensors of our own on the CPU; blocks.

    Raises:
        RuntimeError: the sender is gone.
    """
    sizes = torch.empty(2, dtype=torch.int64)
    await_all([group.receive(sizes, sender, SIZES)])
    structure, packed = (torch.empty(int(size), dtype=torch.uint8) for size in sizes)
    await_all([group.receive(structure, sender, STRUCTURE), group.receive(packed, sender, SMALL)])
    skeleton = _read(structure)
    tensors: list[torch.Tensor] = [
        torch.empty(shape, dtype=dtype) for shape, dtype in _specifications(skeleton)
    ]
    small, large = _by_size(tensors)
    await_all([group.receive(_raw(tensor), sender, LARGE) for tensor in large])
    _unpack(packed, small)
    return _with_tensors(skeleton, iter(tensors))


def share(group: Group, note: Any) -> dict[int, Any]:
    """Give all ranks a small note, and get theirs, by rank: plain values, containers and tensors; blocks.

    Raises:
        RuntimeError: a peer is gone.
    """
    ours = _bytes_of(note)
    size = torch.tensor([ours.numel()], dtype=torch.int64)
    sizes = {rank: torch.empty_like(size) for rank in group.others}
    works = [group.receive(each, rank, NOTE_SIZE) for rank, each in sizes.items()]
    await_all(works + [group.send(size, rank, NOTE_SIZE) for rank in group.others])
    notes = {rank: torch.empty(int(each), dtype=torch.uint8) for rank, each in sizes.items()}
    works = [group.receive(each, rank, NOTE) for rank, each in notes.items()]
    await_all(works + [group.send(ours, rank, NOTE) for rank in group.others])
    return {rank: _read(each) for rank, each in notes.items()}


def _read(structure: torch.Tensor) -> Any:
    return torch.load(io.BytesIO(structure.numpy().tobytes()), weights_only=True)


# A tensor's place in the structure is held by (_PLACE, shape, dtype).
_PLACE = "\x00tensor"


def _without_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach().cpu().contiguous())
        return (_PLACE, tuple(value.shape), value.dtype)
    return _mapped(value, lambda each: _without_tensors(each, tensors))


def _with_tensors(value: Any, tensors: Any) -> Any:
    if _is_place(value):
        return next(tensors)
    return _mapped(value, lambda each: _with_tensors(each, tensors))


def _mapped(value: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: convert(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([convert(each) for each in value])
    return value


def _is_place(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 3 and value[0] == _PLACE


def _specifications(value: Any) -> list[tuple[tuple[int, ...], torch.dtype]]:
    if _is_place(value):
        return [(value[1], value[2])]
    if isinstance(value, Mapping):
        return [found for each in value.values() for found in _specifications(each)]
    if isinstance(value, (list, tuple)):
        return [found for each in value for found in _specifications(each)]
    return []


def _by_size(tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    small = [each for each in tensors if each.nbytes < LARGE_BYTES]
    return small, [each for each in tensors if each.nbytes >= LARGE_BYTES]


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes, sharing its memory."""
    return tensor.view(-1).view(torch.uint8)


def _offsets(tensors: list[torch.Tensor]) -> tuple[list[int], int]:
    offsets, end = [], 0
    for tensor in tensors:
        offsets.append(end)
        end += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, max(end, ALIGNMENT)


def _packed(tensors: list[torch.Tensor]) -> torch.Tensor:
    offsets, size = _offsets(tensors)
    packed = torch.zeros(size, dtype=torch.uint8)
    for tensor, offset in zip(tensors, offsets, strict=True):
        packed[offset : offset + tensor.nbytes] = _raw(tensor)
    return packed


def _unpack(packed: torch.Tensor, tensors: list[torch.Tensor]) -> None:
    offsets, _ = _offsets(tensors)
    for tensor, offset in zip(tensors, offsets, strict=True):
        _raw(tensor).copy_(packed[offset : offset + tensor.nbytes])


def _bytes_of(structure: Any) -> torch.Tensor:
    buffer = io.BytesIO()
    torch.save(structure, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)

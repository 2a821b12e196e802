"""The state of a training, moved between processes in memory: large tensors as they are, small ones packed.

All ranks of a group take part: those that have the state give, each its part of the large tensors' bytes, and
those that have none receive every byte once. The structure travels as `torch.save` writes it and is read with
`weights_only`, so that no peer can make us run code.
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from hpctools.elastic.containers import PLACE, mapped
from hpctools.elastic.group import Group, Work, await_all
from hpctools.elastic.readable import check_skeleton
from hpctools.errors import ElasticError

SIZES, STRUCTURE, SMALL, LARGE = 11, 12, 13, 14
NOTE_SIZE, NOTE = 15, 16
LARGE_BYTES = 1 << 16
BUCKET_BYTES = 16 << 20
ALIGNMENT = 64
UNREADABLE = "\x00unreadable"
"""What is sent in place of a structure that the receiver could not read: this, and why."""


def move_state(group: Group, capture: Callable[[], Mapping[str, Any]] | None) -> Any:
    """Bring the state to the ranks of a group that have none; blocks. All ranks call it.

    The first rank that has the state sends its structure and tensors below LARGE_BYTES. Ranks whose
    large tensors have the same shapes as the first one's share the rest.

    Args:
        capture: gives the state: a nest of dicts, lists, tuples, plain values and tensors; the same on all
            ranks that have it. None: we have none.

    Returns:
        The state, in tensors of our own on the CPU, for those that had none; None for the others.

    Raises:
        RuntimeError: a peer is gone, or no rank has a state.
        ElasticError: we have none, and there is something in it that could not be read here.
    """
    packed = _Packed(capture()) if capture is not None else None
    ours = packed.digest if packed is not None else None
    digests = share(group, ours) | {group.rank: ours}
    giving = [rank for rank in sorted(digests) if digests[rank] is not None]
    getting = [rank for rank in sorted(digests) if digests[rank] is None]
    if not giving:
        raise RuntimeError("no rank has the state")
    donors = [rank for rank in giving if digests[rank] == digests[giving[0]]]
    if packed is None:
        return _receive(group, donors)
    if group.rank in donors and getting:
        packed.send(group, getting, donors.index(group.rank), len(donors))
    return None


def send_state(group: Group, to: int, state: Mapping[str, Any]) -> None:
    """Send a nest of dicts, lists, tuples, plain values and tensors to one rank; blocks.

    Raises:
        RuntimeError: the receiver is gone.
    """
    _Packed(state).send(group, [to], 0, 1)


def receive_state(group: Group, sender: int) -> Any:
    """What `send_state` sends, in tensors of our own on the CPU; blocks.

    Raises:
        RuntimeError: the sender is gone.
        ElasticError: there is something in it that could not be read here.
    """
    return _receive(group, [sender])


class _Packed:
    """A state as it travels.

    Attributes:
        digest: of the large tensors' shapes and dtypes.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        tensors: list[torch.Tensor] = []
        self._skeleton = _without_tensors(state, tensors)
        self._small, self._large = _by_size(tensors)
        shapes = repr([(tuple(each.shape), each.dtype) for each in self._large])
        self.digest = hashlib.blake2b(shapes.encode(), digest_size=8).hexdigest()

    def send(self, group: Group, receivers: Sequence[int], part: int, parts: int) -> None:
        """Send part number `part` of `parts` to each receiver."""
        works: list[Work] = []
        if part == 0:
            small = _packed(self._small)
            structure = _structure_of(self._skeleton)
            sizes = torch.tensor([structure.numel(), small.numel()], dtype=torch.int64)
            first = [(sizes, SIZES), (structure, STRUCTURE)]
            first += [(bucket, SMALL) for bucket in torch.split(small, BUCKET_BYTES)]
            works += [group.send(tensor, to, tag) for to in receivers for tensor, tag in first]
        for number, low, high in buckets(self._large, part, parts):
            bucket = _raw(self._large[number])[low:high].cpu()
            works += [group.send(bucket, to, LARGE) for to in receivers]
        await_all(works)


def _structure_of(skeleton: Any) -> torch.Tensor:
    """As it travels; of one that cannot be read, the reason: the sender's own training is sound."""
    try:
        check_skeleton(skeleton)
    except ElasticError as error:
        print(f"elastic: a worker cannot be given the training's state: {error}", file=sys.stderr, flush=True)
        return _bytes_of((UNREADABLE, str(error)))
    return _bytes_of(skeleton)


def buckets(tensors: Sequence[torch.Tensor], part: int, parts: int) -> Iterator[tuple[int, int, int]]:
    """The bytes of one part of the tensors: number of the tensor, first byte, end; BUCKET_BYTES at most."""
    total, begin = sum(each.nbytes for each in tensors), 0
    first, last = part * total // parts, (part + 1) * total // parts
    for number, tensor in enumerate(tensors):
        low, high = max(first - begin, 0), min(last - begin, tensor.nbytes)
        for start in range(low, high, BUCKET_BYTES):
            yield number, start, min(start + BUCKET_BYTES, high)
        begin += tensor.nbytes


def _receive(group: Group, donors: Sequence[int]) -> Any:
    sizes = torch.empty(2, dtype=torch.int64)
    await_all([group.receive(sizes, donors[0], SIZES)])
    structure, packed = (torch.empty(int(size), dtype=torch.uint8) for size in sizes)
    works = [group.receive(bucket, donors[0], SMALL) for bucket in torch.split(packed, BUCKET_BYTES)]
    await_all([group.receive(structure, donors[0], STRUCTURE), *works])
    skeleton = _read(structure)
    if isinstance(skeleton, tuple) and skeleton[:1] == (UNREADABLE,):
        raise ElasticError(skeleton[1])
    tensors: list[torch.Tensor] = [
        torch.empty(shape, dtype=dtype) for shape, dtype in _specifications(skeleton)
    ]
    small, large = _by_size(tensors)
    works = [
        group.receive(_raw(large[number])[low:high], donor, LARGE)
        for part, donor in enumerate(donors)
        for number, low, high in buckets(large, part, len(donors))
    ]
    await_all(works)
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
    # A note's tensors may come from another worker's GPU, which need not be one of ours.
    return torch.load(io.BytesIO(structure.numpy().tobytes()), weights_only=True, map_location="cpu")


def _without_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    """With (PLACE, shape, dtype) where a tensor was."""
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach().resolve_conj().resolve_neg().contiguous())
        return (PLACE, tuple(value.shape), value.dtype)
    return mapped(value, lambda each, _: _without_tensors(each, tensors))


def _with_tensors(value: Any, tensors: Any) -> Any:
    if _is_place(value):
        return next(tensors)
    return mapped(value, lambda each, _: _with_tensors(each, tensors))


def _is_place(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 3 and value[0] == PLACE


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
        packed[offset : offset + tensor.nbytes] = _raw(tensor.cpu())
    return packed


def _unpack(packed: torch.Tensor, tensors: list[torch.Tensor]) -> None:
    offsets, _ = _offsets(tensors)
    for tensor, offset in zip(tensors, offsets, strict=True):
        _raw(tensor).copy_(packed[offset : offset + tensor.nbytes])


def _bytes_of(structure: Any) -> torch.Tensor:
    buffer = io.BytesIO()
    torch.save(structure, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)

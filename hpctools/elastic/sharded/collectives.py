"""The collectives that sharded training needs, point to point over a generation's group.

They run in the group's own thread and receive into memory of the group only, so that a worker can be called
away from any of them, and a message that comes late reaches nothing that is in use (decision 0022). Sums are
made in the order of the ranks, so that all ranks get the same bits.

Every function blocks, takes contiguous tensors, and raises RuntimeError when a peer is gone. CUDA tensors are
taken by those that say so, where the group has a group of the devices (`Group.takes`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from hpctools.elastic.group import Group, Work, await_all
from hpctools.elastic.scratch import CPU

GATHER, SCATTER, BROADCAST, BYTES = 21, 22, 23, 24


def all_gather(group: Group, into: torch.Tensor, own: torch.Tensor) -> None:
    """Everyone's tensor, one behind the other in the order of the ranks; of CUDA tensors, too.

    Args:
        into: world * own.numel() elements.
        own: ours; may be the part of `into` that is ours.
    """
    if group.takes(own):
        landed = _on_device(group, "gather", own, group.world * own.numel())
        await_all([group.all_gather_bulk(landed, own.view(-1))])
        into.view(-1).copy_(landed)
        return
    target, flat = into.view(-1), own.reshape(-1)
    size = flat.numel()
    received = {rank: _scratch(group, "gather", rank, flat) for rank in group.others}
    works = [group.receive(tensor, rank, GATHER) for rank, tensor in received.items()]
    works += [group.send(flat, rank, GATHER) for rank in group.others]
    target[group.rank * size : (group.rank + 1) * size].copy_(flat)
    await_all(works)
    for rank, tensor in received.items():
        target[rank * size : (rank + 1) * size].copy_(tensor)


def parts_for_us(group: Group, inputs: torch.Tensor) -> dict[int, torch.Tensor]:
    """Of every rank's tensor of world equal parts the one that is ours, by rank; ours shares its memory."""
    parts = inputs.view(group.world, -1)
    received = {rank: _scratch(group, "scatter", rank, parts[0]) for rank in group.others}
    works = [group.receive(tensor, rank, SCATTER) for rank, tensor in received.items()]
    works += [group.send(parts[rank], rank, SCATTER) for rank in group.others]
    await_all(works)
    return {**received, group.rank: parts[group.rank]}


def reduce_scatter(group: Group, into: torch.Tensor, inputs: torch.Tensor) -> None:
    """The sum over all ranks of the part that is ours; of CUDA tensors, too, then in an order of nccl's own.

    Args:
        into: inputs.numel() / world elements.
        inputs: world equal parts, the one for rank 0 first.
    """
    if group.takes(inputs):
        landed = _on_device(group, "scatter", inputs, into.numel())
        await_all([group.reduce_scatter_bulk(landed, inputs.view(-1))])
        into.view(-1).copy_(landed)
        return
    target, received = into.view(-1), parts_for_us(group, inputs)
    target.copy_(received[0])
    for rank in range(1, group.world):
        target.add_(received[rank])


def everyones(group: Group, own: torch.Tensor) -> list[torch.Tensor]:
    """Everyone's tensor of our tensor's shape, by rank."""
    where = own.device if group.world == 1 else CPU
    gathered = torch.empty((group.world, own.numel()), dtype=own.dtype, device=where)
    all_gather(group, gathered, own)
    return [each.view(own.shape) for each in gathered]


def all_reduce(group: Group, into: torch.Tensor, own: torch.Tensor, operation: str) -> None:
    """Everyone's tensor combined, in the order of the ranks.

    Args:
        operation: SUM, AVG, PRODUCT, MIN or MAX.

    Raises:
        NotImplementedError: another operation.
    """
    if operation not in _COMBINE:
        raise NotImplementedError(f"all-reduce with {operation}")
    first, *others = everyones(group, own.contiguous())
    for other in others:
        first = _COMBINE[operation](first, other)
    into.copy_(first / group.world if operation == "AVG" else first)


_COMBINE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
}


def broadcast(group: Group, into: torch.Tensor, own: torch.Tensor, root: int) -> None:
    """The root's tensor into everybody's."""
    if group.rank == root:
        await_all([group.send(own, rank, BROADCAST) for rank in group.others])
        return
    received = _scratch(group, "broadcast", root, own)
    await_all([group.receive(received, root, BROADCAST)])
    into.copy_(received.view(into.shape))


def exchange_bytes(group: Group, own: bytes) -> list[bytes]:
    """Everyone's message, by rank; they may differ in length."""
    sizes = everyones(group, torch.tensor([len(own)], dtype=torch.int64))
    mine = torch.frombuffer(bytearray(own), dtype=torch.uint8)
    received = {rank: torch.empty(int(sizes[rank]), dtype=torch.uint8) for rank in group.others}
    works: list[Work] = [group.receive(tensor, rank, BYTES) for rank, tensor in received.items()]
    works += [group.send(mine, rank, BYTES) for rank in group.others]
    await_all(works)
    received[group.rank] = mine
    return [received[rank].numpy().tobytes() for rank in range(group.world)]


def _on_device(group: Group, use: str, like: torch.Tensor, elements: int) -> torch.Tensor:
    # The group's own memory here, too: the GPU may still write to it after the group was given up. For what
    # is largest: one for each size would be the whole model.
    size = elements * like.dtype.itemsize
    return group.scratch_of(("device", use, like.device), size, like.device)[:size].view(like.dtype)


def _scratch(group: Group, use: str, rank: int, like: torch.Tensor) -> torch.Tensor:
    # By size, too: layers come in turn, and memory for the largest one is not made anew at each.
    return group.scratch((use, rank, like.numel(), like.dtype), like.numel(), like.dtype)

"""Old parts come to wait where there is room for them, and a person hears when there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hpctools.elastic.sharded import device_room, room
from hpctools.elastic.sharded.moving import PartSet
from hpctools.errors import ElasticError

Warn = Callable[[str], None]


def chosen(own: int, per_node: int, old: room.Old, seen: room.Seen, warn: Warn) -> room.Waiting:
    """Where they wait.

    Args:
        own: bytes of the parts that are to come to one worker.
        per_node: workers of this node, to which as many come.
        warn: told when nothing has room by what was seen, and it is tried all the same.
    """
    if seen.device is None:
        waiting = room.choose(own * per_node, old, seen.memory, seen.places)
    else:
        waiting = device_room.choose(own, seen.device, own * per_node, old, seen)
    if waiting.lack:
        warn(waiting.lack)
    return waiting


def moved_out(held: Sequence[PartSet], waiting: room.Waiting, warn: Warn) -> tuple[PartSet, ...]:
    """To a folder, or from a GPU to the host's memory; their own memory is given back.

    Args:
        warn: told of those that cannot be moved (a quota is seen only by who writes): they stay.

    Returns:
        All of them; none: none could be moved.
    """
    moved = [_moved(each, waiting, warn) for each in held]
    if all(each is None for each in moved):
        return ()
    return tuple(new or before for new, before in zip(moved, held, strict=True))


def _moved(held: PartSet, waiting: room.Waiting, warn: Warn) -> PartSet | None:
    try:
        tensors = (
            device_room.moved_to_host(held.tensors)
            if waiting.folder is None
            else room.moved_out(held.tensors, waiting.folder)
        )
    except (ElasticError, RuntimeError) as error:  # torch's, for want of memory
        warn(f"old shards stay where they are at a resize: {error}")
        return None
    for tensor in held.tensors.values():
        tensor.untyped_storage().resize_(0)
    return PartSet(held.version, held.parts, tensors, held.plain)

"""Where the old parts of a state wait that is on a GPU: there, in the host's memory, or further away.

Both must be there for a moment, and until the first step with the new ones is done, which needs memory for
activations and gradients beside. When the GPU has not that much, the old parts are moved to the host.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from hpctools.elastic.sharded.room import MARGIN, MEMORY, Device, Old, Seen, Waiting, found_in

HOST = "host memory"


def look(state_bytes: int, workers_per_node: int) -> Device:
    """What there is on the current GPU at present, `state_bytes` of it being the parts that we hold.

    Of more workers than GPUs as many share each, as far as can be known: who has hidden the others' GPUs from
    itself is taken for one that shares.
    """
    free, _ = torch.cuda.mem_get_info()
    unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    work = max(0, torch.cuda.max_memory_allocated() - state_bytes)
    return Device(free + unused, work, -(-workers_per_node // max(1, torch.cuda.device_count())))


def choose(new: int, device: Device, new_here: int, old: Old, seen: Seen) -> Waiting:
    """Where the old parts wait; pure.

    Where nothing has room by these estimates, that is where the least of it is missing: GPU or host.

    Args:
        new: bytes of the parts that are to come to this worker.
        new_here: of all workers of this node: they come through the host's memory.
    """
    on_device = (MARGIN * new + device.work) * device.workers
    on_host = MARGIN * (new_here + old.here)
    if device.free >= on_device:
        return Waiting(MEMORY)
    if seen.memory >= on_host:
        return Waiting(HOST)
    for place in seen.places:
        if place.free >= old.at(place):
            return Waiting(place.kind, place.folder)
    medium = MEMORY if device.free * on_host >= seen.memory * on_device else HOST
    return Waiting(medium, lack=_lack(new, device, old, seen))


def _lack(new: int, device: Device, old: Old, seen: Seen) -> str:
    return (
        f"a resize needs room for {new >> 20} MiB of new shards and {device.work >> 20} MiB for steps on a "
        f"GPU with {device.free >> 20} MiB, or for {old.here >> 20} MiB of old shards of this node's workers "
        f"elsewhere (in the run folder, for {old.everywhere >> 20} MiB of all); there are "
        f"{seen.memory >> 20} MiB of the host's memory{found_in(seen.places)}. It is tried all the same. "
        "Ask for more memory (--mem) or more nodes, or set SLURM_TMPDIR to a disk with room"
    )


def moved_to_host(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies of the tensors in the host's memory."""
    return {name: each.detach().to("cpu", copy=True).contiguous() for name, each in tensors.items()}

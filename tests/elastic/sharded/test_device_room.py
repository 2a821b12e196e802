"""Where old parts wait that are on a GPU: there while it has room, then on the host, then on disks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hpctools.elastic.sharded import device_room
from hpctools.elastic.sharded.device_room import HOST
from hpctools.elastic.sharded.room import LOCAL, MEMORY, SHARED, Device, Old, Place, Seen, Waiting

MIB = 1 << 20
DISK, RUN = Path("/scratch"), Path("/runs/1")


@pytest.mark.parametrize(
    ("free", "host", "disk", "shared", "expected"),
    [
        (155, 0, 0, 0, Waiting(MEMORY)),
        (154, 350, 0, 0, Waiting(HOST)),
        (0, 349, 80, 160, Waiting(LOCAL, DISK)),
        (0, 349, 79, 160, Waiting(SHARED, RUN)),
    ],
)
def test_the_nearest_place_with_room(free: int, host: int, disk: int, shared: int, expected: Waiting) -> None:
    """100 MiB of new parts and 30 of a step's; two workers a node have 40 each, as on another node."""
    places = [Place(LOCAL, DISK, disk * MIB), Place(SHARED, RUN, shared * MIB)]
    seen, old = Seen(host * MIB, places), Old.of(40 * MIB, workers_per_node=2, holders=4)
    device = Device(free * MIB, 30 * MIB)
    assert device_room.choose(100 * MIB, device, 200 * MIB, old, seen) == expected


def test_several_workers_on_a_gpu_share_its_room() -> None:
    seen, old = Seen(1 << 40), Old.of(40 * MIB, workers_per_node=2, holders=4)
    for workers, expected in ((1, MEMORY), (2, HOST)):
        device = Device(200 * MIB, 30 * MIB, workers)
        assert device_room.choose(100 * MIB, device, 200 * MIB, old, seen) == Waiting(expected)


@pytest.mark.parametrize(("free", "host", "expected"), [(9, 7, MEMORY), (1, 300, HOST)])
def test_no_room_anywhere_is_said_with_figures_and_tried_where_least_is_missing(
    free: int, host: int, expected: str
) -> None:
    """154 MiB are wanted on the GPU, 350 on the host."""
    seen, old = Seen(host * MIB, [Place(LOCAL, DISK, 79 * MIB)]), Old(80 * MIB, 160 * MIB)
    waiting = device_room.choose(100 * MIB, Device(free * MIB, 30 * MIB), 200 * MIB, old, seen)
    assert (waiting.medium, waiting.folder) == (expected, None)
    said = (
        f"100 MiB of new shards and 30 MiB for steps on a GPU with {free} MiB, or for 80 MiB of old shards "
        "of this node's workers elsewhere (in the run folder, for 160 MiB of all); "
        f"there are {host} MiB of the host's memory, 79 MiB in /scratch. It is tried"
    )
    assert said in waiting.lack


def test_what_is_moved_to_the_host_is_a_copy() -> None:
    tensors = {"a": torch.arange(6.0).reshape(2, 3).t(), "b": torch.ones(2, dtype=torch.bfloat16)}
    moved = device_room.moved_to_host(tensors)
    kept = {name: each.clone() for name, each in tensors.items()}
    for each in tensors.values():
        each.zero_()
    assert {name: each.device.type for name, each in moved.items()} == {"a": "cpu", "b": "cpu"}
    assert all(torch.equal(moved[name], kept[name]) and moved[name].is_contiguous() for name in kept)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_tells_what_is_free_and_what_steps_needed() -> None:
    torch.cuda.reset_peak_memory_stats()
    before = device_room.look(0, 1)
    kept = torch.ones(64 * MIB, dtype=torch.uint8, device="cuda")
    passing = torch.ones(32 * MIB, dtype=torch.uint8, device="cuda")
    del passing
    now = device_room.look(kept.numel(), 1)
    assert before.free - now.free == pytest.approx(64 * MIB, abs=4 * MIB)
    assert now.work == pytest.approx(32 * MIB + torch.cuda.memory_allocated() - kept.numel(), abs=4 * MIB)

"""Where old parts wait: memory while it suffices, then the local disk, then the shared folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hpctools.elastic.sharded import room
from hpctools.elastic.sharded.room import LOCAL, MEMORY, SHARED, Old, Place, Waiting
from hpctools.errors import ElasticError

MIB = 1 << 20
DISK, RUN = Path("/scratch"), Path("/runs/1")


@pytest.mark.parametrize(
    ("memory", "disk", "shared", "expected"),
    [
        (126, 0, 0, Waiting(MEMORY)),
        (124, 80, 80, Waiting(LOCAL, DISK)),
        (50, 80, 80, Waiting(LOCAL, DISK)),
        (50, 79, 80, Waiting(SHARED, RUN)),
    ],
)
def test_the_nearest_place_with_room(memory: int, disk: int, shared: int, expected: Waiting) -> None:
    """100 MiB of new parts want 125; moving 80 MiB of old ones out makes so much room."""
    places = [Place(LOCAL, DISK, disk * MIB), Place(SHARED, RUN, shared * MIB)]
    old = Old(80 * MIB, 80 * MIB)
    assert room.choose(100 * MIB, old, memory * MIB, places) == expected


def test_no_room_anywhere_is_said_with_figures() -> None:
    for memory in (40, 50):
        disk = Place(LOCAL, DISK, (80 if memory == 40 else 79) * MIB)
        with pytest.raises(
            ElasticError, match=rf"80 MiB of old and 100 .* {memory} MiB of memory, .* in /scra"
        ):
            room.choose(100 * MIB, Old(80 * MIB, 80 * MIB), memory * MIB, [disk])


@pytest.mark.parametrize(
    ("disk", "shared", "expected"),
    [
        (80, 0, Waiting(LOCAL, DISK)),
        (20, 160, Waiting(SHARED, RUN)),
        (79, 159, None),
    ],
)
def test_several_workers_of_a_node_share_its_room(disk: int, shared: int, expected: Waiting | None) -> None:
    """Eight have 10 MiB each, as those of another node; 80 MiB of new parts want 100, and 40 are free."""
    places = [Place(LOCAL, DISK, disk * MIB), Place(SHARED, RUN, shared * MIB)]
    old = Old.of(10 * MIB, workers_per_node=8, holders=16)
    if expected is not None:
        assert room.choose(80 * MIB, old, 40 * MIB, places) == expected
        return
    with pytest.raises(ElasticError, match=r"80 MiB of old and 80 MiB of new shards .* 160 MiB of all"):
        room.choose(80 * MIB, old, 40 * MIB, places)


def test_moved_out_parts_are_the_same_and_leave_no_file(tmp_path: Path) -> None:
    tensors = {
        "a": torch.arange(30.0).reshape(5, 6),
        "b": torch.arange(3),
        "empty": torch.empty(0, 4),
        "c": torch.ones(7, dtype=torch.bfloat16),
    }
    moved = room.moved_out(tensors, tmp_path)
    assert list(moved) == list(tensors)
    for name, tensor in tensors.items():
        assert torch.equal(moved[name], tensor)
        assert moved[name].dtype == tensor.dtype
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(ElasticError, match=r"cannot move shards to .*nowhere"):
        room.moved_out({"a": torch.ones(1)}, tmp_path / "nowhere")


def test_memory_and_places_of_this_machine(tmp_path: Path) -> None:
    """What the kernel says is believed; file systems that are memory themselves are no way out of it."""
    assert MIB < room.free_memory() < 1 << 50
    found = room.places(tmp_path, {"SLURM_TMPDIR": "/dev/shm", "TMPDIR": str(tmp_path)})
    assert all(each.folder != Path("/dev/shm") for each in found)
    assert found[-1].kind == SHARED
    assert found[-1].folder == tmp_path
    assert found[-1].free > 0

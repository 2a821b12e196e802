"""Where old parts wait: memory while it suffices, then the local disk, then the shared folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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


@pytest.mark.parametrize(
    ("memory", "disk", "expected"), [(40, 80, Waiting(LOCAL, DISK)), (50, 79, Waiting(MEMORY))]
)
def test_no_room_anywhere_is_said_with_figures_and_it_is_tried(
    memory: int, disk: int, expected: Waiting
) -> None:
    """The figures are estimates: a run that fails for them may have had room."""
    waiting = room.choose(100 * MIB, Old(80 * MIB, 80 * MIB), memory * MIB, [Place(LOCAL, DISK, disk * MIB)])
    assert replace(waiting, lack="") == expected
    assert (
        f"80 MiB of old and 100 MiB of new shards of this node's workers (in the run folder, for "
        f"80 MiB of all old ones); there are {memory} MiB of memory, {disk} MiB in /scratch." in waiting.lack
    )
    assert "Ask for more memory" in waiting.lack


@pytest.mark.parametrize(
    ("disk", "shared", "expected"),
    [
        (80, 0, Waiting(LOCAL, DISK)),
        (20, 160, Waiting(SHARED, RUN)),
        (79, 159, Waiting(MEMORY)),
    ],
)
def test_several_workers_of_a_node_share_its_room(disk: int, shared: int, expected: Waiting) -> None:
    """Eight have 10 MiB each, as those of another node; 80 MiB of new parts want 100, and 40 are free."""
    places = [Place(LOCAL, DISK, disk * MIB), Place(SHARED, RUN, shared * MIB)]
    old = Old.of(10 * MIB, workers_per_node=8, holders=16)
    waiting = room.choose(80 * MIB, old, 40 * MIB, places)
    assert replace(waiting, lack="") == expected
    if expected == Waiting(MEMORY):
        assert "80 MiB of old and 80 MiB of new shards" in waiting.lack
        assert "160 MiB of all" in waiting.lack


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


ONE = {
    "memory.limit_in_bytes": 1000 * MIB,
    "memory.usage_in_bytes": 990 * MIB,
    "memory.stat": "cache 1\ninactive_file 1\nactive_file 1\ntotal_inactive_anon {anon}\n"
    "total_inactive_file {inactive}\ntotal_active_file {active}\n",
}
TWO = {
    "memory.max": 1000 * MIB,
    "memory.current": 990 * MIB,
    "memory.stat": "anon 1\nshmem {anon}\ninactive_anon {anon}\n"
    "inactive_file {inactive}\nactive_file {active}\n",
}


def kernel(tmp_path: Path, version: int, groups: Mapping[str, Mapping[str, int | str]]) -> int:
    """What is free for a process in the first of these groups, of a node with 4 GiB."""
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {4 * MIB} kB\n")
    line = {1: "4:cpu:/other\n3:hugetlb,memory:/{0}\n", 2: "0::/{0}\n"}[version]
    (tmp_path / "self/cgroup").write_text(line.format(next(iter(groups))))
    root = tmp_path / "cgroup"
    for name, files in groups.items():
        folder = root / "memory" / name if version == 1 else root / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(str(text))
    return room.free_memory(tmp_path, root)


def stat(files: Mapping[str, int | str], inactive: int, active: int) -> dict[str, int | str]:
    text = str(files["memory.stat"]).format(inactive=inactive * MIB, active=active * MIB, anon=90 * MIB)
    return {**files, "memory.stat": text}


@pytest.mark.parametrize(("version", "files"), [(1, ONE), (2, TWO)])
def test_files_that_the_kernel_keeps_while_nobody_needs_the_memory_are_free(
    version: int, files: Mapping[str, int | str], tmp_path: Path
) -> None:
    """As of a data set that is read from files; what is in a tmpfs is not."""
    assert kernel(tmp_path, version, {"job_7/step_0": stat(files, 500, 300)}) == 810 * MIB


@pytest.mark.parametrize(("version", "files"), [(1, ONE), (2, TWO)])
def test_each_limit_above_counts_with_the_files_of_its_own(
    version: int, files: Mapping[str, int | str], tmp_path: Path
) -> None:
    groups = {
        "job_7/step_0": stat(files, 500, 300),
        "job_7": stat(files, 100, 20),
        "other": stat(files, 0, 0),
    }
    assert kernel(tmp_path, version, groups) == 130 * MIB


@pytest.mark.parametrize(("version", "files"), [(1, ONE), (2, TWO)])
@pytest.mark.parametrize("told", ["", "inactive_file\n", "anon 5\n"])
def test_without_word_of_files_all_that_is_used_counts(
    version: int, files: Mapping[str, int | str], told: str, tmp_path: Path
) -> None:
    assert kernel(tmp_path, version, {"job_7": {**files, "memory.stat": told}}) == 10 * MIB


def test_no_more_is_free_than_the_limit_allows(tmp_path: Path) -> None:
    assert kernel(tmp_path, 2, {"job_7": stat(TWO, 900, 300)}) == 1000 * MIB

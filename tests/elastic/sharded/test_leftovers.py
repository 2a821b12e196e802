"""What a killed writer of shards has left on a disk that is full with it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from shard_parts import RankOfOne

from hpctools import elastic
from hpctools.elastic.checkpoint import folder_store
from hpctools.elastic.checkpoint.folder_store import FolderStore
from hpctools.elastic.sharded import part_files


def test_it_is_removed_before_the_next_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a save it never was, where there was no room for one."""
    left = FolderStore(tmp_path).begin(400, "killed_1.4")
    (left.folder / "shards-00000.bin").write_bytes(b"x")
    os.utime(left.folder / "shards-00000.bin", (0, 0))
    os.utime(left.folder, (0, 0))
    write_parts = part_files.write_parts

    def write(*args: Any) -> Any:
        if left.folder.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_parts(*args)

    monkeypatch.setattr(part_files, "write_parts", write)
    rank = RankOfOne(str(tmp_path), elastic.Checkpoint(every_seconds=0, every_steps=1))
    rank.go_to(4)
    rank.keeper.close()
    (said,) = rank.desk.of("warning")
    assert "No space left on device" in said["message"]
    rank.save_after(5)
    assert not left.folder.exists()
    assert rank.desk.of("warning")[1:] == [{"message": "checkpoints are written again (step 5)"}]
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000005"]


@pytest.mark.parametrize("number", [0, 1])
def test_what_a_save_that_fails_has_written_goes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Each of the next ones would leave as much, and fill the disk by itself."""
    write_parts = part_files.write_parts

    def write(*args: Any) -> Any:
        write_parts(*args)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(part_files, "write_parts", write)
    rank = RankOfOne(str(tmp_path), rank=number, world=2)
    rank.step, rank.keeper.agreed = 4, True
    rank.keeper.boundary(4, sound=True)
    rank.keeper.close()
    assert len(rank.desk.of("save_failed")) == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_save_that_cannot_even_be_prepared_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the thread that writes ends, and nobody hears of it."""
    rank = RankOfOne(str(tmp_path), elastic.Checkpoint(every_seconds=0, every_steps=1))
    with monkeypatch.context() as now:
        now.setattr(rank.keeper._roll_backs, "note_rest", lambda: {}["nothing"])
        rank.go_to(4)
        rank.keeper.close()
    assert [each["step"] for each in rank.desk.of("save_failed")] == [4]
    rank.save_after(5)


def test_a_note_that_may_not_last_goes_with_what_it_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the note and without the shards rank 0 could complete a checkpoint, of which half is missing."""
    removed: list[str] = []
    unlink = Path.unlink

    def sync(path: Path) -> None:
        if any(path.glob("part-*")):  # the note has its name: the folder is not on the disk
            raise OSError(errno.EIO, "Input/output error")

    def noting(path: Path, **options: Any) -> None:
        removed.append(path.name)
        unlink(path, **options)

    monkeypatch.setattr(folder_store, "_sync", sync)
    monkeypatch.setattr(Path, "unlink", noting)
    rank = RankOfOne(str(tmp_path), rank=1, world=2)
    rank.step, rank.keeper.agreed = 4, True
    rank.keeper.boundary(4, sound=True)
    rank.keeper.close()
    assert "Input/output error" in rank.desk.of("save_failed")[0]["reason"]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert removed[0] == "part-00001.json"

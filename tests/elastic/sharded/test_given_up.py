"""A save that is given up because a worker left while it was written: the storage has not failed."""

from __future__ import annotations

import errno
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from shard_parts import RankOfOne

from hpctools import elastic
from hpctools.elastic.checkpoint.folder_store import FolderStore
from hpctools.elastic.sharded import attempts, keeping, part_files

SELDOM = elastic.Checkpoint(every_seconds=0, every_steps=100)
WRITE_PARTS = part_files.write_parts
LEFT = "a worker left or was lost while it was written"


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ranks whose neighbours leave while they write."""
    ranks: list[Any] = []

    def write(*args: Any) -> Any:
        for rank in ranks:
            rank.keeper.hurry()
        return WRITE_PARTS(*args)

    monkeypatch.setattr(keeping, "LOST_SECONDS", 0.0)
    monkeypatch.setattr(part_files, "write_parts", write)
    return ranks


def save(rank: RankOfOne, step: int) -> None:
    """As one of the ranks that agreed to."""
    rank.step, rank.keeper.agreed = step, True
    rank.keeper.boundary(step, sound=True)
    rank.keeper.close()


def pause_of(rank: RankOfOne) -> float:
    """How long it is until the next one may be tried."""
    return rank.keeper._attempts._next_try - time.monotonic()


def test_however_often_it_comes_the_next_save_is_soon(tmp_path: Path, leaving: list[Any]) -> None:
    rank = RankOfOne(str(tmp_path), SELDOM, world=2)
    leaving.append(rank)
    for step in (100, 101, 102, 103, 104):
        save(rank, step)
    assert pause_of(rank) <= attempts.SETTLE_SECONDS
    reasons = [each["reason"] for each in rank.desk.of("save_failed")]
    assert len(reasons) == 5
    assert reasons[0].startswith(f"rank 0: {LEFT} (writer 1 of 2 has not added its part of ")
    assert reasons[0].endswith("save again in a few seconds; if it comes often, give faster storage")
    (said,) = rank.desk.of("warning")
    assert said["message"].startswith(f"the checkpoint of step 100 failed on rank 0: {LEFT}")


def test_what_was_given_up_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaving: list[Any]
) -> None:
    """Else preemptions that come once in an interval leave the run without any checkpoint."""
    monkeypatch.setattr(attempts, "SETTLE_SECONDS", 0.0)
    rank = RankOfOne(str(tmp_path), SELDOM, world=2)
    leaving.append(rank)
    save(rank, 100)
    leaving.clear()
    rank.world = 1
    for step in (101, 102):
        rank.go_to(step)
        rank.keeper.close()
    assert [each["step"] for each in rank.desk.of("saved")] == [101], "102 is not due"


def test_storage_that_fails_as_somebody_leaves_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaving: list[Any]
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FolderStore, "commit", full)
    rank = RankOfOne(str(tmp_path), SELDOM)
    leaving.append(rank)
    for step in (100, 101):
        save(rank, step)
    assert pause_of(rank) > attempts.FIRST_RETRY_SECONDS
    assert all("No space left" in each["reason"] for each in rank.desk.of("save_failed"))
    assert LEFT not in rank.desk.of("save_failed")[0]["reason"]


def test_who_still_writes_what_rank_0_has_given_up_stops_at_the_next_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the first rank next time it need not wait for storage that is well; nor do the others for it now."""
    rank: Any = RankOfOne(str(tmp_path), SELDOM, rank=1, world=2)
    pieces: list[Path] = []

    def write(folder: Path, *args: Any) -> Any:
        *rest, go_on = args
        go_on()
        pieces.append(folder)
        rank.keeper.hurry()
        go_on()
        pieces.append(folder)
        shutil.rmtree(folder)
        go_on()
        pieces.append(folder)
        return WRITE_PARTS(folder, *rest, go_on)

    monkeypatch.setattr(part_files, "write_parts", write)
    save(rank, 100)
    assert len(pieces) == 2
    assert pause_of(rank) <= attempts.SETTLE_SECONDS
    assert rank.desk.of("save_failed")[0]["reason"].startswith(f"rank 1: {LEFT} (rank 0 has given it up)")


def test_a_rank_that_finds_no_folder_to_write_in_has_seen_no_failure_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank: Any = RankOfOne(str(tmp_path), SELDOM, rank=1, world=2)
    add = FolderStore.add

    def added(store: FolderStore, stage: Any, *args: Any) -> None:
        rank.keeper.hurry()
        shutil.rmtree(stage.folder)
        add(store, stage, *args)

    monkeypatch.setattr(FolderStore, "add", added)
    for step in (100, 101):
        save(rank, step)
    assert pause_of(rank) <= attempts.SETTLE_SECONDS
    assert f"rank 1: {LEFT} (cannot write" in rank.desk.of("save_failed")[1]["reason"]

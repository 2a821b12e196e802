"""How long rank 0 waits for the other ranks' parts, and what it then says."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shard_parts import RankOfOne
from test_loader import loader_for, no_group_stays

from hpctools import elastic
from hpctools.elastic.group import Group
from hpctools.elastic.sharded import keeping

__all__ = ["no_group_stays"]

LONG = 60.0


def two_ranks(place: Path, step: int) -> list[Any]:
    two = [RankOfOne(str(place), rank=rank, world=2) for rank in (0, 1)]
    for each in two:
        each.step = step
    return two


def write(rank: Any, took: float) -> None:
    """As the thread of a save that has begun so many seconds ago."""
    rank.keeper._write(rank._moment(rank.desk.origin), rank._living(), time.monotonic() - took, 0.0, None)


@pytest.mark.parametrize("took", [0.0, LONG])
def test_who_has_taken_long_leaves_the_others_as_long_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took: float
) -> None:
    """Shards that take half an hour are not ready on all nodes within the same minute."""
    monkeypatch.setattr(keeping, "COMMIT_SECONDS", 0.0)
    first, second = two_ranks(tmp_path, 4)
    tried = threading.Event()
    describe = keeping.whole.describe

    def described(*args: Any) -> int:
        try:
            return describe(*args)
        finally:
            tried.set()  # and there was nothing yet

    monkeypatch.setattr(keeping.whole, "describe", described)
    writing = threading.Thread(target=write, args=(first, took))
    writing.start()
    assert tried.wait(LONG)
    if not took:
        writing.join(LONG)
    write(second, 0.0)
    writing.join(LONG)
    assert [each["step"] for each in first.desk.of("saved")] == ([4] if took else [])
    if not took:
        (failed,) = first.desk.of("save_failed")
        assert failed["reason"].endswith("where it says nothing, that rank is slower than the others")


@pytest.mark.parametrize(
    ("before", "after", "goes"), [(2, 1, True), (2, None, True), (None, 2, True), (1, 2, False)]
)
def test_who_leaves_is_not_waited_for_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int | None, after: int | None, goes: bool
) -> None:
    """Its part may never come; meanwhile nothing else is saved, not even as the run ends."""
    old, new = (None if world is None else Group(1, 0, world, None) for world in (before, after))
    loader: Any = loader_for(checkpoint=elastic.Checkpoint(folder=str(tmp_path), every_seconds=0))
    monkeypatch.setattr(loader._shards, "move", lambda *_: False)
    loader._move(old, new, lambda _, work: work())
    assert (loader._shard_keeper._give_up_at < time.monotonic() + LONG) == goes


def test_at_the_end_each_rank_goes_on_writing_for_as_long_as_rank_0_may_wait(tmp_path: Path) -> None:
    """Whose process ended after a minute took the last checkpoint of a slow node with it."""
    rank = RankOfOne(str(tmp_path))
    waited: list[float] = []
    writer: Any = SimpleNamespace(join=waited.append)
    rank.keeper._writer = writer
    rank.keeper.close()
    assert waited == [keeping.MOST_SECONDS]

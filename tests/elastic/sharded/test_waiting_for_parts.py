"""How long rank 0 waits for the other ranks' parts, and what it then says."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from shard_parts import RankOfOne

from hpctools.elastic.sharded import keeping

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

"""What is chosen to go on from, while checkpoints are completed and older ones removed for them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from shard_parts import RankOfOne

from hpctools import elastic
from hpctools.elastic.sharded import choosing, part_files

LONG = 60.0
ONE = elastic.Checkpoint(every_seconds=0, every_steps=1, keep=1)


def test_what_is_just_being_completed_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker was lost meanwhile. The one before is older, and goes when this one is complete."""
    rank: Any = RankOfOne(str(tmp_path), ONE)
    rank.save_after(3)
    released, write_parts = threading.Event(), part_files.write_parts

    def held(*args: Any) -> Any:
        assert released.wait(LONG)
        return write_parts(*args)

    monkeypatch.setattr(part_files, "write_parts", held)
    rank.go_to(7)
    writer = rank.keeper._writer
    join = writer.join

    def awaited(seconds: float) -> None:
        released.set()
        join(LONG)

    monkeypatch.setattr(writer, "join", awaited)
    rank.keeper.hurry()
    step = rank.keeper.newest()
    rank.keeper.close()
    assert torch.equal(rank.filled_from(step), torch.full((4,), float(step)))
    assert step == 7


def test_what_is_removed_while_it_is_looked_at_is_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the run that it is of, which trains on: there is something newer, and not nothing."""
    source = RankOfOne(str(tmp_path), ONE)
    source.save_after(3)
    problem, looked = choosing._problem, []

    def looking(found: Any) -> str | None:
        if not looked:
            source.save_after(7)
        looked.append(found.manifest.step)
        return problem(found)

    monkeypatch.setattr(choosing, "_problem", looking)
    settings = elastic.Checkpoint(resume_from=str(tmp_path))
    rank = RankOfOne(str(tmp_path / "own"), settings)
    assert rank.keeper.newest() == 7
    assert looked == [3, 7]

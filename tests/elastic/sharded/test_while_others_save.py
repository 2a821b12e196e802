"""What is chosen to go on from, while checkpoints are completed and older ones removed for them."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from shard_parts import RankOfOne

from hpctools import elastic
from hpctools.elastic.checkpoint import reading
from hpctools.elastic.checkpoint.folder_store import FolderStore
from hpctools.elastic.checkpoint.saver import Origin
from hpctools.elastic.checkpoint.store import name_of
from hpctools.elastic.sharded import choosing, part_files
from hpctools.errors import ElasticError

LONG = 60.0
ONE = elastic.Checkpoint(every_seconds=0, every_steps=1, keep=1)


@pytest.mark.parametrize(("limit", "expected"), [(None, 7), (5, 3)])
def test_what_is_just_being_completed_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int | None, expected: int
) -> None:
    """A worker was lost meanwhile. The one before is older, and goes when this one is complete.

    But where all go back to the one before.
    """
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
    rank.keeper.limit = limit
    step = rank.keeper.newest()
    rank.keeper.close()
    assert torch.equal(rank.filled_from(step), torch.full((4,), float(step)))
    assert step == expected


def test_what_was_due_while_another_was_written_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after as many steps again."""
    released, write_parts = threading.Event(), part_files.write_parts

    def held(*args: Any) -> Any:
        assert released.wait(LONG)
        return write_parts(*args)

    monkeypatch.setattr(part_files, "write_parts", held)
    rank = RankOfOne(str(tmp_path), elastic.Checkpoint(every_seconds=0, every_steps=100))
    for step in (99, 100, 101, 200, 201):
        rank.go_to(step)
    released.set()
    rank.keeper.close()
    rank.go_to(202)
    rank.keeper.close()
    assert [each["step"] for each in rank.desk.of("saved")] == [100, 202]


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


def test_what_another_node_does_not_show_yet_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS may show a folder for some seconds as it was when this node looked last."""
    monkeypatch.setattr(reading, "PAUSES", (0.0, 0.0))
    RankOfOne(str(tmp_path)).save_after(7)
    names, stale = FolderStore.names, [True, True]
    monkeypatch.setattr(FolderStore, "names", lambda store: [] if stale and stale.pop() else names(store))
    other = RankOfOne(str(tmp_path), rank=1)
    assert set(other.keeper.examples(7)) == {"model weight"}
    assert stale == []
    with pytest.raises(ElasticError, match=rf"step 9 in {tmp_path}, and we do not see it \(3 times in") as no:
        other.keeper.examples(9)
    assert "give a folder that all nodes share" in str(no.value)


def test_another_checkpoint_of_a_step_that_was_read_before_is_found(tmp_path: Path) -> None:
    """All went back beyond it, with copies, and came to the step again: rank 0 has chosen the new one."""
    RankOfOne(str(tmp_path)).save_after(7)
    other = RankOfOne(str(tmp_path), rank=1)
    assert torch.equal(other.filled_from(7), torch.full((4,), 7.0))
    again = RankOfOne(str(tmp_path))
    again.save_after(7)
    shutil.rmtree(tmp_path / name_of(7))
    assert RankOfOne(str(tmp_path)).keeper.newest() == 7
    assert torch.equal(other.filled_from(7), torch.full((4,), 7.0))


def test_two_trainings_without_a_run_do_not_write_into_each_others_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same script, started twice by mistake: both come to the same step at the same time."""
    released, reached, write_parts = threading.Event(), threading.Event(), part_files.write_parts

    def held(*args: Any) -> Any:
        if not reached.is_set():
            reached.set()
            assert released.wait(LONG)
        return write_parts(*args)

    monkeypatch.setattr(part_files, "write_parts", held)
    two = [RankOfOne(str(tmp_path), ONE) for _ in range(2)]
    for rank in two:
        rank.desk.origin = Origin("", 0, 0)
    two[0].go_to(7)
    assert reached.wait(LONG)
    two[1].save_after(7)
    released.set()
    two[0].keeper.close()
    assert [rank.desk.of("warning") for rank in two] == [[], []]
    assert torch.equal(RankOfOne(str(tmp_path)).filled_from(7), torch.full((4,), 7.0))

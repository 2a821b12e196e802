"""A roll back that cannot be noted where the checkpoints lie, as that place cannot be written just then."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from checkpoint_rig import RUN, Training, assert_is_of, read, write
from test_keeper import Committing

sys.path.append(str(Path(__file__).parents[1] / "sharded"))

from shard_parts import RankOfOne

from hpctools.elastic.checkpoint import roll_backs
from hpctools.elastic.checkpoint.folder_store import FolderStore
from hpctools.elastic.checkpoint.keeper import Order
from hpctools.elastic.checkpoint.saver import Origin
from hpctools.elastic.checkpoint.settings import Checkpoint
from hpctools.elastic.checkpoint.store import Abandoned, abandoned
from hpctools.elastic.sharded import keeping
from hpctools.errors import ElasticError

AFTER = Origin(RUN.run, RUN.term, RUN.generation + 1)


@contextmanager
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def write(store: FolderStore, name: str, data: bytes) -> None:
        raise ElasticError(f"cannot write the checkpoints in {store.where}: No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(FolderStore, "write", write)
        yield


def rolled_back(place: Path) -> Training:
    """One that has saved after 4 and 8 steps, and goes back to 4."""
    training = Training(place, Checkpoint(every_seconds=0, every_steps=4))
    for step in (4, 8):
        training.go_to(step)
        training.saved()
    training.keeper.roll_back(5, 9)
    training.desk.origin = AFTER
    return training


def test_it_is_noted_with_the_next_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever begins again goes on from what was given up: it is of a later step."""
    training = rolled_back(tmp_path)
    with full(monkeypatch):
        training.keeper.settled(4)
    (said,) = training.desk.of("warning")
    assert "cannot be marked so: cannot write the checkpoints in" in said["message"]
    training.desk.order = Order("node is drained")
    training.go_to(6)
    assert training.saved() == [4, 8, 6]
    assert read(tmp_path) == (6, [])
    assert len(training.desk.of("warning")) == 1


def went_back(place: Path, *, saves: bool) -> Training:
    """A worker that has taken part in a roll back from step 8 to step 4."""
    training = Training(place, Checkpoint(every_seconds=0))
    training.desk.saves = saves
    training.keeper.roll_back(5, 9)
    training.desk.origin = AFTER
    training.keeper.settled(4)
    return training


def test_whoever_saves_next_notes_it_when_who_should_have_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 remembered it alone, so that the next start went on from what was given up."""
    write(tmp_path, 4, 8)
    with full(monkeypatch):
        went_back(tmp_path, saves=True)
        other = went_back(tmp_path, saves=False)
    assert other.desk.of("warning") == [], "one tells it"
    other.desk.saves, other.desk.order = True, Order("node is drained")
    other.go_to(6)
    assert other.saved() == [6]
    assert read(tmp_path) == (6, [])


def test_it_is_noted_once(tmp_path: Path) -> None:
    write(tmp_path, 4, 8)
    went_back(tmp_path, saves=True)
    assert read(tmp_path) == (4, [])
    other = went_back(tmp_path, saves=False)
    other.desk.saves, other.desk.order = True, Order("node is drained")
    other.go_to(6)
    assert other.saved() == [6]
    assert abandoned(FolderStore(tmp_path)) == [Abandoned(AFTER.run, AFTER.term, AFTER.generation, 4)]


class Hanging:
    """Storage that answers nobody who writes a small file until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.released = threading.Event()
        self._write = FolderStore.write
        monkeypatch.setattr(FolderStore, "write", lambda *args: self(*args))
        monkeypatch.setattr(roll_backs, "NOTE_SECONDS", 0.01)

    def __call__(self, store: FolderStore, name: str, data: bytes) -> None:
        assert self.released.wait(30)
        self._write(store, name, data)


def test_storage_that_hangs_does_not_stop_the_training_and_nothing_is_saved_before_it_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 4, 8)
    hanging = Hanging(monkeypatch)
    training = went_back(tmp_path, saves=True)
    (said,) = training.desk.of("warning")
    assert "not marked so yet: storage has not answered in 0.01 s" in said["message"]
    training.desk.order = Order("node is drained", urgent=False)
    training.go_to(6)
    assert not training.keeper._saver.wait(0.0)
    assert read(tmp_path) == (8, [])
    hanging.released.set()
    assert training.saved() == [6]
    assert read(tmp_path) == (6, [])


def test_what_is_completed_during_it_removes_nothing_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state to go back to is the one that would make room."""
    training = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=2, keep=1))
    training.go_to(2)
    assert training.saved() == [2]
    hung = Committing(training, monkeypatch)
    training.go_to(4)
    assert hung.reached.wait(30)
    training.keeper.roll_back(3, 4)
    hung.released.set()
    assert training.saved() == [2, 4]
    assert_is_of(training.keeper.begin(4), 2)


def test_so_it_is_of_a_sharded_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rank: Any = RankOfOne(str(tmp_path))
    for step in (4, 8):
        rank.save_after(step)
    rank.keeper.limit = 5
    rank.keeper.rolled_back(4)
    rank.desk.origin = AFTER
    with full(monkeypatch):
        rank.keeper.boundary(4, sound=True)
    rank.save_after(6)
    assert RankOfOne(str(tmp_path)).keeper.newest() == 6


def test_of_a_sharded_model_who_becomes_rank_0_notes_it_too(tmp_path: Path) -> None:
    rank: Any = RankOfOne(str(tmp_path))
    for step in (4, 8):
        rank.save_after(step)
    other: Any = RankOfOne(str(tmp_path))
    other.desk.saves = False
    other.keeper.limit = 5
    other.keeper.rolled_back(4)
    other.desk.origin = AFTER
    other.keeper.boundary(4, sound=True)
    other.desk.saves = True
    other.save_after(6)
    assert RankOfOne(str(tmp_path)).keeper.newest() == 6


NOT_BEFORE = "checkpoints of what was rolled back cannot be marked so before it: cannot write"


def test_nothing_is_committed_before_it_is_noted_and_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever lost all state then would go on from what was given up, beside what was saved since."""
    training = rolled_back(tmp_path)
    with full(monkeypatch):
        training.keeper.settled(4)
        training.go_to(6, 8)
        assert training.saved() == [4, 8]
        training.desk.order = Order("node is drained", number="2.7")
        training.go_to(9)
        assert training.saved() == [4, 8]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["step-000000004", "step-000000008"]
    assert [each["step"] for each in training.desk.of("save_failed")] == [8, 9]
    assert all(NOT_BEFORE in each["reason"] for each in training.desk.of("save_failed"))
    assert [each["order"] for each in training.desk.of("unsaved")] == ["2.7"]
    training.keeper._saver._next_try = 0.0
    training.go_to(10)
    assert training.saved() == [4, 8, 10]
    assert read(tmp_path) == (10, [])


def test_of_a_sharded_model_nothing_is_committed_before_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "COMMIT_SECONDS", 0.0)
    rank: Any = RankOfOne(str(tmp_path))
    for step in (4, 8):
        rank.save_after(step)
    rank.keeper.limit = 5
    rank.keeper.rolled_back(4)
    rank.desk.origin = AFTER
    with full(monkeypatch):
        rank.desk.order = Order("node is drained")
        rank.go_to(6)
    (failed,) = rank.desk.of("save_failed")
    assert NOT_BEFORE in failed["reason"]
    assert [each["step"] for each in rank.desk.of("unsaved")] == [6]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["step-000000004", "step-000000008"], "what others have written goes with it"
    rank.save_after(7)
    assert RankOfOne(str(tmp_path)).keeper.newest() == 7

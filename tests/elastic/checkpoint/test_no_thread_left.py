"""A node that has no thread left when a checkpoint is due: the training goes on, and it is tried again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from checkpoint_rig import Training, read, write
from scarce import scarce
from test_roll_backs import AFTER

sys.path.append(str(Path(__file__).parents[1] / "sharded"))

from shard_parts import RankOfOne

from hpctools.elastic.checkpoint.keeper import Order
from hpctools.elastic.checkpoint.settings import Checkpoint

BY_ORDER = Checkpoint(every_seconds=0)
KINDS = pytest.mark.parametrize("kind", [Training, RankOfOne])
NONE_LEFT = "no thread can be started on this node: can't start new thread; have fewer processes and threads"


@KINDS
@pytest.mark.parametrize("urgent", [True, False])
def test_who_ordered_a_checkpoint_hears_of_it_and_the_next_one_is_written(
    kind: Any, urgent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training: Any = kind(str(tmp_path), BY_ORDER)
    training.desk.order = Order("node is drained", urgent=urgent, number="2.7")
    with scarce(monkeypatch, "thread", 0):
        training.go_to(4)
    (failed,) = training.desk.of("save_failed")
    assert (failed["step"], failed["order"]) == (4, "2.7")
    assert NONE_LEFT in failed["reason"]
    assert [each["order"] for each in training.desk.of("unsaved")] == ["2.7"] * urgent
    (said,) = training.desk.of("warning")
    assert NONE_LEFT in said["message"]
    assert "the training goes on without, and it is tried again" in said["message"]
    training.desk.order = Order("node is drained", number="2.8")
    training.go_to(5)
    assert [each["step"] for each in training.desk.of("saved")] == [5]


@KINDS
def test_what_was_written_before_it_is_not_taken_for_it(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training: Any = kind(str(tmp_path), BY_ORDER)
    training.desk.order = Order("first")
    training.go_to(4)
    training.desk.order = Order("second")
    with scarce(monkeypatch, "thread", 0):
        training.go_to(5)
    assert [each["step"] for each in training.desk.of("saved")] == [4]
    assert [each["step"] for each in training.desk.of("unsaved")] == [5]


def test_a_roll_back_is_noted_with_the_next_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 4, 8)
    training = Training(tmp_path, BY_ORDER)
    training.keeper.roll_back(5, 9)
    training.desk.origin = AFTER
    with scarce(monkeypatch, "thread", 0):
        training.keeper.settled(4)
    (said,) = training.desk.of("warning")
    assert f"cannot be marked so: {NONE_LEFT}" in said["message"]
    training.desk.order = Order("node is drained")
    training.go_to(6)
    assert training.saved() == [6]
    assert read(tmp_path) == (6, [])

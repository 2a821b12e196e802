"""What is to be done about a place that cannot be written, of whichever kind the model is."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from checkpoint_rig import Training

sys.path.append(str(Path(__file__).parents[1] / "sharded"))

from shard_parts import RankOfOne

from hpctools.elastic.checkpoint import saver
from hpctools.elastic.checkpoint.folder_store import FolderStore
from hpctools.elastic.checkpoint.settings import Checkpoint
from hpctools.elastic.checkpoint.store import Stage
from hpctools.elastic.sharded import part_files

EACH_STEP = Checkpoint(every_seconds=0, every_steps=1)
FULL = "No space left on device; free space or quota there, or give another folder (checkpoint: folder)"
READ_ONLY = "Read-only file system; have it made writable for you on all nodes, or give another folder"


def failing(number: int) -> Any:
    def fail(*_: object) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


def said_of(training: Training | RankOfOne) -> str:
    training.go_to(1)
    if isinstance(training, Training):
        training.keeper.close(finished=True)
    else:
        training.keeper.close()
    (warning,) = training.desk.of("warning")
    (failed,) = training.desk.of("save_failed")
    message: str = warning["message"]
    assert failed["reason"].removeprefix("rank 0: ") in message
    return message


@pytest.mark.parametrize(("number", "said"), [(errno.ENOSPC, FULL), (errno.EROFS, READ_ONLY)])
def test_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str) -> None:
    monkeypatch.setattr(saver, "write_state", failing(number))
    monkeypatch.setattr(part_files, "write_parts", failing(number))
    for training in (Training(tmp_path, EACH_STEP), RankOfOne(str(tmp_path), EACH_STEP)):
        assert f"cannot write to {tmp_path}: {said}" in said_of(training)


def test_a_folder_that_is_not_ours_is_no_matter_of_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FolderStore, "_make", failing(errno.EACCES))
    assert "Permission denied; have it made writable for you on all nodes" in said_of(
        Training(tmp_path, EACH_STEP)
    )


class Bucket:
    """A store whose files are written on this machine first."""

    where = "s3://bucket/me"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def clean(self, labels: str) -> None: ...

    def discard(self, stage: Stage) -> None: ...

    def begin(self, step: int, label: str) -> Stage:
        return Stage(step, label, self._folder)


def test_an_upload_needs_room_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver, "write_state", failing(errno.ENOSPC))
    monkeypatch.setattr(part_files, "write_parts", failing(errno.ENOSPC))
    for training in (Training(Bucket.where, EACH_STEP), RankOfOne(Bucket.where, EACH_STEP)):
        training.keeper._store_ = Bucket(tmp_path)  # type: ignore[assignment]
        said = said_of(training)
        assert f"cannot write to {tempfile.gettempdir()}, from which it is uploaded to {Bucket.where}" in said
        assert "free space there, or set TMPDIR to a disk with room" in said

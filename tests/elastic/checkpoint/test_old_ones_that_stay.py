"""Old checkpoints that cannot be removed are no failure, and no news with each new one."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_rig import RUN, Heard, read, state_after

from hpctools.elastic.checkpoint.folder_store import FolderStore
from hpctools.elastic.checkpoint.saver import Saver
from hpctools.errors import ElasticError

STAY = "old checkpoints stay: the server is gone"


def test_it_is_said_once_until_they_can_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    saver = Saver(FolderStore(tmp_path), 1, heard.reports)

    def save(*steps: int) -> list[str]:
        for step in steps:
            saver.save(state_after(step), step, "interval", RUN, {})
            assert saver.wait(30)
        return heard.warnings

    def failing(store: FolderStore, name: str) -> None:
        raise ElasticError("the server is gone")

    with monkeypatch.context() as gone:
        gone.setattr(FolderStore, "remove", failing)
        assert save(1, 2, 3, 4) == [STAY]
    assert save(5) == [STAY]
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000005"]
    with monkeypatch.context() as gone:
        gone.setattr(FolderStore, "remove", failing)
        assert save(6, 7) == [STAY, STAY]
    assert heard.failed == []
    assert read(tmp_path) == (7, [])

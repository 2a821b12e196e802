"""A sharded training whose script changes its folder between making the loader and using it."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_loader import loader_for, no_group_stays, train

from hpctools import elastic
from hpctools.elastic.sharded import process_group

__all__ = ["no_group_stays"]


def test_what_it_begins_from_and_where_it_saves_stay_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("start", "output"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "start")
    loader = loader_for(checkpoint=elastic.Checkpoint(folder="saved", every_seconds=0, every_steps=2))
    monkeypatch.chdir(tmp_path / "output")
    train(loader, lambda: loader.model, loader.optimizer)
    process_group.uninstall()
    monkeypatch.chdir(tmp_path / "start")
    again = loader_for(checkpoint=elastic.Checkpoint(resume_from="saved"))
    monkeypatch.chdir(tmp_path / "output")
    assert again.step == 4
    keeper = again._shard_keeper
    assert keeper is not None
    assert keeper.newest() == 4

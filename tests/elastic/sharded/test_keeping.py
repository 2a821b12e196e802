"""The keeper of one rank's shards: what a training begins from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from shard_parts import SPEC, RankOfOne

from hpctools import elastic
from hpctools.elastic.folder import RunFolder
from hpctools.errors import ElasticError


def run_that_saved(path: Path, step: int) -> RunFolder:
    """The folder of a run that has ended, with one checkpoint in it."""
    folder = RunFolder.create(path, SPEC)
    RankOfOne(str(path / "checkpoints")).save_after(step)
    return folder


def test_a_run_folder_means_where_the_run_saved(tmp_path: Path) -> None:
    """As `hp-submit --resume RUN` says it; rank 0 looks for the newest, another rank for that very step."""
    source = run_that_saved(tmp_path / "before", 7)
    settings = elastic.Checkpoint(resume_from=str(source.path))
    looking, other = (RankOfOne(str(tmp_path / "own"), settings) for _ in range(2))
    assert looking.keeper.newest() == 7
    assert set(other.keeper.examples(7)) == {"weight"}
    filled = other.filled_from(7)
    assert torch.equal(filled, torch.full((4,), 7.0))


def test_what_was_saved_since_goes_before_what_the_run_began_from(tmp_path: Path) -> None:
    source = run_that_saved(tmp_path / "before", 7)
    settings = elastic.Checkpoint(resume_from=str(source.path))
    RankOfOne(str(tmp_path / "own")).save_after(3)
    assert RankOfOne(str(tmp_path / "own"), settings).keeper.newest() == 3


def test_a_source_without_a_checkpoint_is_no_beginning(tmp_path: Path) -> None:
    """Whoever says what to go on from does not want step 0."""
    folder = RunFolder.create(tmp_path / "before", SPEC)
    keeper = RankOfOne(str(tmp_path / "own"), elastic.Checkpoint(resume_from=str(folder.path))).keeper
    with pytest.raises(ElasticError, match=r"should begin from a checkpoint in .*/before, and there is no"):
        keeper.newest()
    assert RankOfOne(str(tmp_path / "own")).keeper.newest() == -1

"""What a run went on from is there for it, and for who resumes it, while it has saved nothing itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from checkpoint_rig import read, write

from hpctools.elastic.checkpoint import resume_source
from hpctools.elastic.checkpoint.place import meant_by
from hpctools.elastic.earlier_terms import something_saved
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 3, 1, ("true",), "/", (), "/r.sh", "now")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Of a run that began from a checkpoint of a folder that its program names."""
    (saved,) = write(tmp_path / "theirs", 50).saved
    folder = RunFolder.create(tmp_path / "run", SPEC)
    folder.append_event("resumed", step=50, where=saved.where)
    return folder


def roll_back(folder: RunFolder) -> None:
    folder.append_event("action", action="RollBack")


def save(folder: RunFolder, place: Path, step: int) -> None:
    (saved,) = write(place, step).saved
    folder.append_event("saved", **saved.to_json())


def test_a_run_that_was_lost_before_its_first_save_is_resumed_from_there(
    folder: RunFolder, tmp_path: Path
) -> None:
    source = resume_source(str(folder.path), tmp_path)
    assert source == str(tmp_path / "theirs" / "step-000000050")
    write(tmp_path / "theirs", 90)  # by somebody else meanwhile
    assert read(source) == (50, [])


def test_all_that_are_lost_after_a_roll_back_find_it(folder: RunFolder) -> None:
    """The run failed, as its own folder has nothing, though its program begins from there again."""
    roll_back(folder)
    assert something_saved(folder, SPEC)


def test_what_was_saved_since_comes_first(folder: RunFolder, tmp_path: Path) -> None:
    save(folder, folder.path / "checkpoints", 70)
    roll_back(folder)
    assert resume_source(str(folder.path), tmp_path) == str(folder.path / "checkpoints")
    assert meant_by(str(folder.path))[-1] == str(tmp_path / "theirs" / "step-000000050")


def test_nothing_older_takes_the_place_of_a_save_that_is_not_to_be_seen(
    folder: RunFolder, tmp_path: Path
) -> None:
    """As where its file system is not mounted: who resumes would lose the steps in between without a word."""
    save(folder, folder.path / "checkpoints", 70)
    shutil.rmtree(folder.path / "checkpoints")
    with pytest.raises(ElasticError, match="no whole checkpoint"):
        resume_source(str(folder.path), tmp_path)
    roll_back(folder)
    assert resume_source(str(folder.path), tmp_path) == str(tmp_path / "theirs" / "step-000000050")

"""A folder of checkpoints that is named without its beginning is the same one for all who look for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from checkpoint_rig import write
from test_resume import Training

from hpctools import elastic
from hpctools.elastic.checkpoint import place_of, resume_source, settings_of
from hpctools.elastic.checkpoint.settings import Checkpoint
from hpctools.elastic.earlier_terms import something_saved
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 3, 1, ("true",), "/", (), "/r.sh", "now")


def begin_in_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is in the folder `start`, beside which there is `output`."""
    for name in ("start", "output"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "start")


def test_a_policys_folder_is_found_by_the_coordinator_and_by_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers start in the folder of the submission; the node's agent and a later hp-submit elsewhere."""
    work = tmp_path / "work"
    spec = replace(SPEC, workdir=str(work), checkpoint={"folder": "saved/here"})
    folder = RunFolder.create(tmp_path / "run", spec)
    write(work / "saved" / "here", 10)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert something_saved(folder, spec)
    assert resume_source(str(folder.path), tmp_path) == str(work / "saved" / "here")


@pytest.mark.parametrize("place", ["s3://bucket/x", "/scratch/me"])
def test_what_is_whole_stays_as_it_is(tmp_path: Path, place: str) -> None:
    folder = RunFolder.create(tmp_path / "run", replace(SPEC, workdir="/somewhere"))
    assert place_of(folder, Checkpoint(folder=place)) == place


def test_a_scripts_folder_is_where_the_script_is_when_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path / "run", replace(SPEC, workdir="/somewhere"))
    monkeypatch.chdir(tmp_path)
    settings = settings_of(folder.spec(), Checkpoint(folder="saved"))
    monkeypatch.chdir("/")
    assert place_of(folder, settings) == str(tmp_path / "saved")


def test_a_home_is_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    folder = RunFolder.create(tmp_path / "run", replace(SPEC, workdir="/somewhere"))
    assert place_of(folder, Checkpoint(folder="~/saved")) == "/home/me/saved"


def test_a_program_that_goes_to_another_folder_saves_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that changes to a folder for its output, of a new name each time."""
    begin_in_start(tmp_path, monkeypatch)
    training = Training(elastic.Checkpoint(folder="saved", every_seconds=0, every_steps=1))
    monkeypatch.chdir(tmp_path / "output")
    training.run(until=3)
    monkeypatch.chdir(tmp_path / "start")
    again = Training(elastic.Checkpoint(folder="saved", every_seconds=0, every_steps=1), seed=1)
    assert min(again.run().losses) == 3


@pytest.mark.parametrize("field", ["folder", "resume_from"])
def test_a_home_of_nobody_is_told_as_that(tmp_path: Path, field: str) -> None:
    """A slip in a name was a RuntimeError about one's own home."""
    settings = elastic.Checkpoint(**{"folder": str(tmp_path), field: "~nobody-of-that-name/saved"})
    with pytest.raises(
        ElasticError, match="home folder ~nobody-of-that-name/saved could be in; give the path"
    ):
        Training(settings).run(until=1)


def test_what_it_begins_from_is_where_the_program_was_when_it_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_in_start(tmp_path, monkeypatch)
    Training(elastic.Checkpoint(folder="saved", every_seconds=0, every_steps=1)).run(until=3)
    training = Training(elastic.Checkpoint(resume_from="saved"), seed=1)
    monkeypatch.chdir(tmp_path / "output")
    assert min(training.run().losses) == 3

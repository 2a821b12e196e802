"""Runs of a submission that Slurm has forgotten are neither made again nor removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.elastic.folder import RunFolder
from hpctools.errors import RemoteError
from hpctools.remote import local_submit
from hpctools.remote.local_submit import HereSlurm
from hpctools.remote.once import Job
from hpctools.remote.submissions import Record, Submission

RECORD = Record("train-0123456789ab", "r", state="submitting", suffix="0123456789ab")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm knows of no job any more."""
    monkeypatch.setenv("HPCTOOLS_RUNS", str(tmp_path))
    monkeypatch.setattr(local_submit, "_jobs_by_comment", dict)
    folder = tmp_path / "train-0123456789ab"
    folder.mkdir()
    return folder


def test_the_job_that_was_noted_down_is_found(run: Path) -> None:
    slurm = HereSlurm(Submission(run), lambda _: 0, ())
    assert slurm.find(RECORD) is None
    RunFolder(run).append_job("baseline", 7)
    assert slurm.find(RECORD) == Job(7, "train-0123456789ab")


def test_a_run_that_has_begun_is_never_removed(run: Path) -> None:
    slurm = HereSlurm(Submission(run), lambda _: 0, ())
    (run / "status.json").write_text("{}")
    with pytest.raises(RemoteError, match="has run already"):
        slurm.forget(RECORD)
    (run / "status.json").unlink()
    slurm.forget(RECORD)
    assert not run.exists()

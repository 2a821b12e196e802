"""Jobs and the time limit while the disk is full: they are written when it is not any more, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.elastic.folder import RunFolder
from hpctools.elastic.journal import STATUS_SECONDS, FolderJournal
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.time_limit import TimeLimit
from hpctools.errors import ElasticError

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 3, 1, ("true",), "/", (), "/r.sh", "now")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", SPEC)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Undone, there is room again."""
    monkeypatch.setattr(RunFolder, "_append", no_space)
    monkeypatch.setattr(RunFolder, "_replace", no_space)
    return monkeypatch


def no_space(*_: object) -> None:
    raise ElasticError("cannot write it: No space left on device")


def noted(folder: RunFolder) -> list[tuple[str, int]]:
    return [(job.role, job.job_id) for job in folder.jobs()]


def test_jobs_of_a_full_disk_are_written_when_there_is_room_each_once(
    folder: RunFolder, full: pytest.MonkeyPatch
) -> None:
    journal = FolderJournal(folder, SPEC)
    for job_id in (102, 103, 102):
        journal.job("replica", job_id)
    journal.flush(0.0)
    told = [job.time for job in journal._jobs._owed]
    full.undo()
    folder.append_job("replica", 103)  # by somebody else meanwhile
    journal.flush(STATUS_SECONDS / 2)
    assert noted(folder) == [("replica", 103)], "it is tried twice a second"
    journal.flush(STATUS_SECONDS)
    journal.flush(2 * STATUS_SECONDS)
    assert noted(folder) == [("replica", 103), ("replica", 102)]
    assert folder.jobs()[1].time == told[0], "when it was submitted, not when that was written"
    journal.job("replica", 104)
    assert noted(folder)[2:] == [("replica", 104)]


def test_the_newest_time_limit_is_written_when_there_is_room(
    folder: RunFolder, full: pytest.MonkeyPatch
) -> None:
    journal = FolderJournal(folder, SPEC)
    journal.time_limit(TimeLimit(5, None, 60))
    journal.time_limit(TimeLimit(5, 1234.5, 60))
    journal.flush(0.0)
    full.undo()
    journal.flush(STATUS_SECONDS)
    assert folder.time_limit() == TimeLimit(5, 1234.5, 60)


@pytest.mark.parametrize("debt", ["job", "time limit"])
def test_a_run_that_ends_waits_for_what_is_owed(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, debt: str
) -> None:
    journal = FolderJournal(folder, SPEC)
    journal.flush(0.0)
    assert not journal.owes
    with monkeypatch.context() as full:
        full.setattr(RunFolder, "_append", no_space)
        full.setattr(RunFolder, "_replace", no_space)
        if debt == "job":
            journal.job("replica", 102)
        else:
            journal.time_limit(TimeLimit(5, 1234.5, 60))
    assert journal.owes
    journal.flush(STATUS_SECONDS)
    assert not journal.owes


def test_a_list_of_jobs_that_cannot_be_read_is_no_reason_to_forget_one(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FolderJournal(folder, SPEC)
    with monkeypatch.context() as away:
        away.setattr(RunFolder, "jobs", no_space)
        journal.job("replica", 102)
    journal.flush(0.0)
    assert noted(folder) == [("replica", 102)]

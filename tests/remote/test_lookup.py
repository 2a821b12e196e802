"""A submission of which nobody knows whether there is a job: it is asked for, never guessed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hpctools.errors import RemoteError, UnreachableError
from hpctools.remote import overview
from hpctools.remote.lookup import lookup, with_job
from hpctools.remote.once import Answer, Job
from hpctools.remote.submissions import Record, Submission

NAME = "train-0123456789ab"


class Slurm:
    """Knows a job, or does not answer."""

    def __init__(self, job: Job | None = None, *, away: bool = False) -> None:
        self.job, self.away = job, away

    def submit(self, record: Record, lock: int, go_on: Callable[[], None]) -> Answer:
        raise AssertionError("nothing is submitted")

    def find(self, record: Record) -> Job | None:
        if self.away:
            raise UnreachableError("Slurm does not answer", "try scontrol ping")
        return self.job

    def forget(self, record: Record) -> None:
        raise AssertionError("nothing is forgotten")


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    made = Submission(tmp_path / NAME)
    made.make()
    return made


def test_the_job_that_slurm_knows_is_used_and_noted(submission: Submission) -> None:
    before = submission.write(Record(NAME, "r", "submitting"))
    done = with_job(submission, before, Slurm(Job(7, "train-abc")))
    assert (done.state, done.job_id, done.run) == ("submitted", 7, "train-abc")
    assert submission.record() == done
    assert with_job(submission, done, Slurm(away=True)) == done


def test_who_is_at_work_on_it_notes_it(submission: Submission) -> None:
    """sbatch holds the lock; and a record that is another one by now is not replaced."""
    before = submission.write(Record(NAME, "r", "submitting"))
    with submission.locked(lambda: None):
        assert with_job(submission, before, Slurm(Job(7))).job_id == 7
        assert submission.record() == before
    later = submission.write(before)
    assert with_job(submission, before, Slurm(Job(7))).job_id == 7
    assert submission.record() == later


def test_it_can_be_read_where_nothing_can_be_written(
    submission: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quota is full: that is why it was not noted the first time."""
    before = submission.write(Record(NAME, "r", "submitting"))

    def full(self: Submission, record: Record) -> Record:
        raise RemoteError("cannot write")

    monkeypatch.setattr(Submission, "write", full)
    assert with_job(submission, before, Slurm(Job(7))).job_id == 7


def test_to_submit_it_again_is_said_of_what_was_not_submitted_only(submission: Submission) -> None:
    with pytest.raises(RemoteError, match=f"{NAME} was not submitted; submit it again"):
        with_job(submission, Record(NAME, "r", "receiving"), Slurm(Job(7)))
    unsure = Record(NAME, "r", "submitting")
    with pytest.raises(RemoteError, match=f"^it is not known whether {NAME} .* --submission {NAME}:"):
        with_job(submission, unsure, Slurm())
    with pytest.raises(UnreachableError, match=f"does not answer; it is not known .* --submission {NAME}:"):
        with_job(submission, unsure, Slurm(away=True))


def test_what_was_interrupted_while_it_was_sent_is_known_and_was_not_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hp-status said "there is no run" of the very id that an interrupted hp-submit tells to ask about."""
    monkeypatch.setenv("HPCTOOLS_SUBMISSIONS", str(tmp_path))
    assert lookup(NAME) is None
    Submission(tmp_path / NAME).make()
    found = lookup(NAME)
    assert found is not None
    assert "job         not submitted\n" in overview.one(overview.entry(*found), as_text=True)
    with pytest.raises(RemoteError, match=f"{NAME} was not submitted; .* with --submission {NAME}"):
        with_job(*found, Slurm(Job(7)))

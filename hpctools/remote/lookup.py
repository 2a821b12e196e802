"""Submissions by what a person calls them; a job that nobody could note down is looked up in Slurm."""

from __future__ import annotations

import contextlib
import os

from hpctools.errors import RemoteError
from hpctools.remote import once, submissions
from hpctools.remote.once import Slurm
from hpctools.remote.submissions import Record, Submission

Found = tuple[Submission, Record]


def lookup(name: str) -> Found | None:
    """A submission by its id, or by its job's; None when there is none."""
    found = submissions.find(name, os.environ)
    if found is None and name.isdecimal():
        return next((each for each in submissions.every(os.environ) if each[1].job_id == int(name)), None)
    if found is None:
        return None
    # Without a record its files are on their way, or the line broke while they were.
    return found, found.record() or Record(name, "", marked=found.now())


def with_job(submission: Submission, record: Record, slurm: Slurm) -> Record:
    """The record of a submission whose job is known; one that stands at `submitting` is looked up and noted.

    Raises:
        RemoteError: nothing was submitted, or it is not known whether anything was.
        UnreachableError: that is not known, and Slurm does not answer.
    """
    if record.state == "submitting":
        job = once.find(slurm, record)
        if job is None:
            raise RemoteError(
                f"it is not known whether {record.id} was submitted",
                f"give the same line with --submission {record.id}: it is submitted once",
            )
        return _note(submission, record, once.with_its_job(record, job))
    if record.job_id is None:
        again = f"; with --submission {record.id} what has come of its files is not sent anew"
        raise RemoteError(
            f"{record.id} was not submitted", "submit it again" + (again if not record.request else "")
        )
    return record


def _note(submission: Submission, before: Record, done: Record) -> Record:
    """Write it down for the next one who asks, unless somebody is at work on it, or it cannot be written."""
    with contextlib.suppress(RemoteError), submission.locked(lambda: None, seconds=0):
        if submission.record() == before:
            return submission.write(done)
    return done

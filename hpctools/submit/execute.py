"""Carry an elastic submission out. Whatever goes wrong, no folder and no job is left behind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hpctools.elastic.folder import RunFolder
from hpctools.errors import HpctoolsError, SubmitError
from hpctools.slurm.client import SlurmClient
from hpctools.submit.plan import BatchFile, ElasticSubmission, run_comment
from hpctools.submit.queue import is_over


def execute_elastic(submission: ElasticSubmission, client: SlurmClient) -> int:
    """Make the run folder and submit the baseline job; return its id.

    Raises:
        SubmitError: the run folder cannot be written.
        CommandError: sbatch refused.
        UnreachableError: the controller does not answer.
    """
    # What cannot be looked at is no folder of ours either; making it says why.
    if os.path.lexists(submission.folder):
        raise SubmitError(f"{submission.folder} exists already", "submit again: the run gets another id")
    try:
        folder = RunFolder.create(submission.folder, submission.spec)
        for file in submission.files:
            _write(submission.folder, file)
        job_id = client.submit(submission.options, submission.script)
        folder.append_job("baseline", job_id)
    except BaseException:
        _undo(submission, client)
        raise
    return job_id


def _write(folder: Path, file: BatchFile) -> None:
    path = folder / file.name
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
            stream.write(file.text)
    except OSError as error:
        raise SubmitError(
            f"cannot write {path}: {error.strerror or error}",
            "free space or quota there, or set HPCTOOLS_RUNS to a folder that all nodes share",
        ) from None


def _undo(submission: ElasticSubmission, client: SlurmClient) -> None:
    # When we were interrupted in the middle, sbatch may have reached the controller all the same.
    try:
        comment = run_comment(submission.spec.id)
        queue = client.jobs(user=submission.spec.user)
        orphans = [job.id for job in queue if job.comment == comment and not is_over(job)]
        if orphans:
            client.cancel(orphans)
    except HpctoolsError:
        # The controller does not answer. Without its folder the batch script ends at once by itself.
        pass
    finally:
        shutil.rmtree(submission.folder, ignore_errors=True)

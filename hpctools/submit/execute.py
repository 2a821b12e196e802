"""Carry an elastic submission out. Whatever goes wrong, no folder and no job is left behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hpctools.elastic.folder import RunFolder
from hpctools.errors import HpctoolsError, RemoteError, SubmitError
from hpctools.slurm.client import SlurmClient
from hpctools.slurm.run import HEARD
from hpctools.submit.batch import ARRAY_JOB
from hpctools.submit.dependencies import waiting_for
from hpctools.submit.plan import BatchFile, ElasticSubmission, run_comment
from hpctools.submit.queue import is_over


def execute_elastic(
    submissions: Sequence[ElasticSubmission],
    client: SlurmClient,
    told: Callable[[str], None] = lambda words: None,
) -> tuple[int, ...]:
    """Make the run folders and submit their baseline jobs; return their ids. It is all of them or none.

    Args:
        told: called with what sbatch said to standard error as it took the first job, when it has taken all.

    Raises:
        RemoteError: another process makes the same submission by now; nothing is undone.
        SubmitError: a run folder cannot be written.
        CommandError: sbatch refused.
        UnreachableError: the controller does not answer.
    """
    for submission in submissions:
        # What cannot be looked at is no folder of ours either; making it says why.
        if os.path.lexists(submission.folder):
            raise SubmitError(f"{submission.folder} exists already", "submit again: the run gets another id")
    job_ids: dict[str, int] = {}
    said: list[str] = []
    hearing = HEARD.set(said.append)
    try:
        # All of them first: who looks for what became of it is to see those that have no job yet.
        for submission in submissions:
            _prepare(submission)
        for submission in submissions:
            job_ids[submission.spec.id] = _submit(submission, client, job_ids)
    except RemoteError:
        raise  # folders and jobs may be the other one's
    except BaseException:
        _undo(submissions, client)
        raise
    finally:
        HEARD.reset(hearing)
    told("".join(said[:1]))
    return tuple(job_ids.values())


def _prepare(submission: ElasticSubmission) -> None:
    RunFolder.create(submission.folder, submission.spec)
    for file in submission.files:
        _write(submission.folder, file)


def _submit(submission: ElasticSubmission, client: SlurmClient, earlier: Mapping[str, int]) -> int:
    first = next(iter(earlier.values()), None)
    if first is not None:
        _write(submission.folder, BatchFile(ARRAY_JOB, f"{first}\n"), mode=0o600)
    before = earlier.get(submission.follows)
    options = submission.options if before is None else waiting_for(submission.options, str(before))
    job_id = client.submit(options, submission.script)
    RunFolder(submission.folder).append_job("baseline", job_id)
    return job_id


def _write(folder: Path, file: BatchFile, mode: int = 0o700) -> None:
    path = folder / file.name
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
            stream.write(file.text)
    except OSError as error:
        raise SubmitError(
            f"cannot write {path}: {error.strerror or error}",
            "free space or quota there, or set HPCTOOLS_RUNS to a folder that all nodes share",
        ) from None


def _undo(submissions: Sequence[ElasticSubmission], client: SlurmClient) -> None:
    # When we were interrupted in the middle, sbatch may have reached the controller all the same.
    try:
        comments = {run_comment(submission.spec.id) for submission in submissions}
        queue = client.jobs(user=submissions[0].spec.user)
        orphans = [job.id for job in queue if job.comment in comments and not is_over(job)]
        if orphans:
            client.cancel(orphans)
    except HpctoolsError:
        # The controller does not answer. Without its folder the batch script ends at once by itself.
        pass
    finally:
        for submission in submissions:
            shutil.rmtree(submission.folder, ignore_errors=True)

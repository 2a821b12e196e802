"""A user's runs, found by what a person calls them."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from hpctools.elastic.folder import JobRecord, RunFolder
from hpctools.elastic.job_fate import ALIVE
from hpctools.errors import CommandError, ElasticError, ReleaseError, SubmitError, UnreachableError
from hpctools.slurm.client import SlurmClient
from hpctools.submit.recorded import is_recorded

_COMMENT = "hp-run:"
_BAD = ("failed", "cancelled")


def run_folders(root: Path) -> list[RunFolder]:
    """All run folders of a user, the newest run first; what is no run folder is left out.

    So is a folder that one may not look into: where people share a place for their runs, another's.

    Raises:
        SubmitError: the folder of the runs cannot be read.
    """
    try:
        paths = [path for path in root.iterdir() if is_there(path / "run.json")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SubmitError(f"cannot read {root}: {error.strerror}", "check $HPCTOOLS_RUNS") from None
    readable = [(created, path) for path in paths if (created := _created(path)) is not None]
    return [RunFolder(path) for _, path in sorted(readable, reverse=True)]


def _created(path: Path) -> str | None:
    try:
        return RunFolder(path).spec().created
    except ElasticError:
        return None


def is_there(path: Path) -> bool:
    """Whether there is something; False where one may not look."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises where nobody may look


def find_run(word: str, root: Path, client: Callable[[], SlurmClient]) -> RunFolder:
    """The run that a person means: by its id, its folder, or the id of any of its Slurm jobs.

    Args:
        client: makes the connection to Slurm, only needed for a job that no folder records.

    Raises:
        SubmitError: there is no such run; names the most similar ones.
        UnreachableError: the controller does not answer.
    """
    if "/" in word:
        return RunFolder(_absolute(word))
    if is_there(root / word / "run.json"):
        return RunFolder(root / word)
    folders = run_folders(root)
    if word.isdecimal():
        return _run_of_job(int(word), folders, client)
    raise _unknown(word, [folder.path.name for folder in folders])


def _absolute(word: str) -> Path:
    try:
        return Path(word).absolute()
    except FileNotFoundError:
        raise SubmitError(
            f"{word} is looked for in the folder that you are in, which is gone",
            "name the run by its id, or its folder from / on",
        ) from None


@dataclass(frozen=True)
class Baselines:
    """Whom a job waits for that is to wait for a run, or for each run of an array.

    Attributes:
        jobs: the newest baseline job of each.
        finished: those of them whose run has finished. How such a job itself ended does not matter: it may
            have been cancelled because nobody needed it any more, or Slurm may have forgotten it.
        failed: those of them whose run has failed, or was cancelled.
        there: those of the failed that Slurm has not ended yet; their ranks may still write.
        restarted: those of the failed whose run was in restart mode.
    """

    jobs: tuple[int, ...]
    finished: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    there: frozenset[int] = frozenset()
    restarted: frozenset[int] = frozenset()


def find_baselines(word: str, root: Path, client: Callable[[], SlurmClient]) -> Baselines:
    """The newest baseline job of a run, or of each run of an array that is named without an index.

    Raises:
        SubmitError: there is no such run, or it has no job.
        UnreachableError: the controller does not answer.
    """
    folders = find_runs(word, root, client)
    newest = [[job for job in each.jobs() if job.role == "baseline"][-1:] for each in folders]
    if not all(newest):
        raise SubmitError(f"run {word} has no baseline job", "see hp-status --all")
    records = [record for (record,) in newest]
    jobs = tuple(record.job_id for record in records)
    states = [status.state if (status := each.status()) else "" for each in folders]
    known = list(zip(jobs, states, strict=True))
    finished = frozenset(job for job, state in known if state == "finished")
    failed = {job: run for (job, state), run in zip(known, folders, strict=True) if state in _BAD}
    restarted = frozenset(job for job, run in failed.items() if run.spec().mode == "restart")
    asked = [(run, job) for run, job in zip(folders, records, strict=True) if job.job_id in failed]
    there = frozenset(still_there([(run.path.name, job) for run, job in asked], client))
    return Baselines(jobs, finished, frozenset(failed), there, restarted)


def still_there(jobs: Collection[tuple[str, JobRecord]], client: Callable[[], SlurmClient]) -> dict[int, str]:
    """Those jobs that wait, run or are being ended, with their states; none when Slurm does not say.

    Args:
        jobs: each with the id of its run; another job that has its id by now is not it.
        client: makes the connection to Slurm.
    """
    if not jobs:
        return {}
    asked = {record.job_id: (f"{_COMMENT}{run}", record) for run, record in jobs}
    try:
        found = client().jobs(ids=sorted(asked))
    except (UnreachableError, CommandError, ReleaseError):
        return {}
    left = [job for job in found if job.id in asked and job.state in (*ALIVE, "COMPLETING")]
    ours = ((job, *asked[job.id]) for job in left)
    return {
        job.id: job.state for job, said, record in ours if job.comment == said or is_recorded(job, record)
    }


def has_said(folder: RunFolder, state: str) -> bool:
    """Whether a run's coordinator has said that it ended so: it does that once nothing is saved any more.

    It tells at which step; who only found the run's jobs gone, or going, does not know it.
    """
    return any(each.event == state and "step" in each.detail for each in folder.events())


def find_runs(word: str, root: Path, client: Callable[[], SlurmClient]) -> list[RunFolder]:
    """The run that a person means, as `find_run`, or all runs of an array that is named without an index.

    Raises:
        SubmitError, UnreachableError: as `find_run`.
    """
    one = is_there(root / word / "run.json")  # then others need not be read
    return (not one and array_runs(word, root)) or [find_run(word, root, client)]


def indices_of(word: str, root: Path) -> frozenset[int]:
    """The indices of an array of runs that is named without one; none when there is no such array.

    Raises:
        SubmitError: the folder of the runs cannot be read.
    """
    if is_there(root / word / "run.json"):
        return frozenset()
    return frozenset(int(run.path.name.rpartition("_")[2]) for run in array_runs(word, root))


def array_runs(word: str, root: Path) -> list[RunFolder]:
    """The runs of an array that is named without an index, by index; none when there is no such array."""
    pattern = re.compile(rf"{re.escape(word)}_(\d+)")
    found = [
        (int(each[1]), folder)
        for folder in run_folders(root)
        if (each := pattern.fullmatch(folder.path.name))
    ]
    return [folder for _, folder in sorted(found, key=lambda each: each[0])]


def _run_of_job(job_id: int, folders: list[RunFolder], client: Callable[[], SlurmClient]) -> RunFolder:
    for folder in folders:
        if _has_had(folder, job_id):
            return folder
    comments = {job.comment for job in client().jobs(ids=[job_id])}
    for folder in folders:
        if f"{_COMMENT}{folder.path.name}" in comments:
            return folder
    raise SubmitError(
        f"job {job_id} belongs to none of your elastic runs",
        f"hp-status lists your runs; for a plain job use `squeue -j {job_id}` or `scancel {job_id}`",
    )


def _has_had(folder: RunFolder, job_id: int) -> bool:
    """Whether a job is one of the run's; of a run that cannot be read it may still be, by its comment."""
    try:
        return any(record.job_id == job_id for record in folder.jobs())
    except ElasticError:
        return False


def _unknown(word: str, names: list[str]) -> SubmitError:
    near = [name for name in names if name.startswith(word)] or difflib.get_close_matches(word, names)
    remedy = f"did you mean {' or '.join(near[:3])}?" if near else "hp-status --all lists your runs"
    return SubmitError(f"there is no run {word if word and word.isprintable() else repr(word)}", remedy)

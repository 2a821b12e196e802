"""hp-submit itself, run in the run folder, and its jobs found again.

What a submission that goes well does not need is imported late: somebody waits.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpctools.errors import HpctoolsError, RemoteError, UnreachableError
from hpctools.remote import own_name, submissions
from hpctools.remote.once import Answer, Job
from hpctools.remote.run_names import is_fitting, pattern
from hpctools.remote.submissions import Record, Submission
from hpctools.slurm.run import KEPT, SUBMITTING
from hpctools.submit import suffix

Program = Callable[[Sequence[str]], int]
"""A command's main: takes its words, returns its exit code, prints to sys.stdout and sys.stderr."""


@dataclass(frozen=True)
class Said:
    """What a program left."""

    code: int
    stdout: str
    stderr: str


def listen(program: Program, words: Sequence[str], pass_on: Callable[[str], None] | None = None) -> Said:
    """Run a command in this process and keep what it prints.

    Args:
        pass_on: is given whole lines of standard error as they come, without the last line break; they are
            not kept. None: all is kept.
    """
    errors = io.BytesIO() if pass_on is None else _PassedOn(pass_on)
    with _kept() as out, _kept(errors) as err, redirect_stdout(out), redirect_stderr(err):
        try:
            code = program(words)
        except SystemExit as ending:  # argparse
            code = ending.code if isinstance(ending.code, int) else 1
        return Said(code, _text(out), _text(err))


class _PassedOn(io.BytesIO):
    """Keeps what is no whole line yet; print() writes a line in pieces."""

    def __init__(self, pass_on: Callable[[str], None]) -> None:
        super().__init__()
        self._pass_on = pass_on

    def write(self, data: Any) -> int:
        written = super().write(data)
        lines, end, rest = self.getvalue().rpartition(b"\n")
        if end:
            self.seek(0)
            self.truncate()
            super().write(rest)
            self._pass_on(lines.decode("utf-8", "replace"))
        return written


@contextmanager
def _kept(buffer: io.BytesIO | None = None) -> Iterator[io.TextIOWrapper]:
    into = io.BytesIO() if buffer is None else buffer
    yield io.TextIOWrapper(into, encoding="utf-8", errors="surrogateescape", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer: Any = stream.buffer
    return bytes(buffer.getvalue()).decode("utf-8", "replace")


@dataclass(frozen=True)
class HereSlurm:
    """The cluster that we are on.

    Attributes:
        program: hp-submit's main.
        words: for it.
    """

    submission: Submission
    program: Program
    words: tuple[str, ...]

    def submit(self, record: Record, lock: int, go_on: Callable[[], None]) -> Answer:
        """See `once.Slurm`: sbatch inherits the lock.

        A plain job's has our standard input, which it does not read; a run's, which has one of its own, is
        given the descriptor besides.
        """
        os.dup2(lock, 0)
        stated, kept, asked = suffix.STATED.set(record.suffix), KEPT.set((lock,)), SUBMITTING.set(go_on)
        try:
            said = self.run(("--json", "--yes"))
        finally:
            suffix.STATED.reset(stated)
            KEPT.reset(kept)
            SUBMITTING.reset(asked)
        return Answer(said.code, _job(said.stdout), "", said.stderr)

    def run(self, more: Sequence[str]) -> Said:
        """hp-submit in the run folder, with more options before the others."""
        os.chdir(self.submission.folder)
        os.environ["PWD"] = str(self.submission.folder)
        return listen(self.program, [*more, *self.words])

    def find(self, record: Record) -> Job | None:
        """See `once.Slurm`."""
        folders = _run_folders(record)
        if folders:
            return _job_of_runs(folders)
        from hpctools.slurm import scripts

        age = max(0.0, self.submission.now() - record.marked)
        found = scripts.jobs_from(self.submission.folder, own_name.by_uid(), age, record.script)
        if found:
            return Job(found[0])
        # Without a mark of ours the run's folder may be in another node's home.
        return _run_elsewhere(record, age) if record.state == "receiving" else None

    def forget(self, record: Record) -> None:
        """See `once.Slurm`: runs that are not whole, with the jobs that some of an array may have."""
        folders = _run_folders(record)
        if not folders:
            return
        in_queue = _jobs_by_comment()
        for folder in folders:
            if _comment(folder) not in in_queue and (folder / "status.json").exists():
                raise RemoteError(
                    f"run {folder.name} of this submission has run already, and Slurm has forgotten it",
                    f"nothing was submitted again; see it with: hp-status {folder.name}",
                )
        jobs = [job for folder in folders for job in in_queue.get(_comment(folder), ())]
        if jobs:
            from hpctools.slurm.choose import choose

            choose("auto").client.cancel(jobs)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def _job(text: str) -> Job | None:
    try:
        said = json.loads(text)
        runs = said.get("runs") or [said]
        job_id = runs[0]["job_id"]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None
    if not isinstance(job_id, int):
        return None
    run = runs[0].get("run") or ""
    # Runs of an array go by the name without the index.
    return Job(job_id, run.rpartition("_")[0] if said.get("runs") else run, said.get("cluster") or "")


def _run_folders(record: Record) -> list[Path]:
    """Folders of elastic runs that the submission made: one, or one for each index of an array."""
    from hpctools.elastic.folder import runs_root

    root = runs_root()
    if not record.suffix or not root.is_dir():
        return []
    found = [each for each in root.iterdir() if is_fitting(record, each.name)]
    theirs = _of_others(record) if found else frozenset()
    return sorted(each for each in found if _group(each.name) not in theirs)


def _of_others(record: Record) -> frozenset[str]:
    """Runs that other submissions made: an id of a person's own may end as another one's does."""
    every = submissions.every(os.environ)
    return frozenset(each.run for _, each in every if each.run and each.id != record.id)


def _group(run: str) -> str:
    """A run's id without an array's index."""
    return re.sub(r"_\d+$", "", run)


def _job_of_runs(folders: Sequence[Path]) -> Job | None:
    """The first job of runs whose every run has one: a baseline job, whose replicas have its comment, too."""
    jobs = _jobs_by_comment()
    first = (_noted(folder) or min(jobs.get(_comment(folder), ()), default=None) for folder in folders)
    ids = [job for job in first if job]
    if len(ids) < len(folders):
        return None
    return Job(min(ids), _group(folders[0].name))


def _run_elsewhere(record: Record, age: float) -> Job | None:
    """A run's first job by its script, which lies in a folder that may not be here."""
    from hpctools.elastic.folder import runs_root
    from hpctools.slurm import scripts

    if not record.suffix:
        return None
    runs = scripts.runs_from(runs_root(), pattern(record), own_name.by_uid(), age, record.runs)
    theirs = _of_others(record) if runs else frozenset()
    ours = {job: _group(run) for job, run in runs.items() if _group(run) not in theirs}
    there = len({runs[job] for job in ours})
    if 0 < there < record.runs and _all_cancelled(list(ours)):
        return None  # as `forget` leaves an array of which sbatch refused a run
    if 0 < there < record.runs:
        raise UnreachableError(
            f"{there} of {record.runs} runs of {min(ours.values())} were submitted from another login node",
            "see them with: squeue --me; cancel them there, or submit under a new id: leave out --submission",
        )
    return Job(min(ours), ours[min(ours)]) if ours else None


def _all_cancelled(jobs: Sequence[int]) -> bool:
    from hpctools.slurm import scripts

    found = scripts.states_of(jobs)
    return all(found.get(job) == ["CANCELLED"] for job in jobs)


def _noted(folder: Path) -> int | None:
    """The baseline job that hp-submit noted down in a run's folder: Slurm may have forgotten it."""
    from hpctools.elastic.folder import RunFolder

    with suppress(HpctoolsError, ValueError):
        return next((job.job_id for job in RunFolder(folder).jobs() if job.role == "baseline"), None)
    return None


def _comment(folder: Path) -> str:
    from hpctools.submit.plan import run_comment

    return run_comment(folder.name)


def _jobs_by_comment() -> dict[str, list[int]]:
    from hpctools.slurm.choose import choose

    found: dict[str, list[int]] = {}
    for job in choose("auto").client.jobs(user=own_name.by_uid()):
        found.setdefault(job.comment, []).append(job.id)
    return found

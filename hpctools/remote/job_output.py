"""A job's output files on the cluster, read while they grow."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpctools.errors import HpctoolsError, RemoteError, UnreachableError, UsageError
from hpctools.remote.submissions import Record, Submission
from hpctools.remote.wire import CHUNK
from hpctools.slurm import accounted, scripts

_LOOK_SECONDS = 0.5
_STATE_SECONDS = 5.0
"""Kind to slurmctld: a file is looked at often, the job's state seldom."""


@dataclass(frozen=True)
class Piece:
    """Some bytes of an output file.

    Attributes:
        path: the file's.
        offset: where the bytes begin.
    """

    path: str
    offset: int
    data: bytes


@dataclass(frozen=True)
class Output:
    """A file that a job writes to.

    Attributes:
        task: of an array, by its index; empty for other jobs, and where it is not known.
    """

    path: str
    task: str = ""


@dataclass(frozen=True)
class Outputs:
    """Files that a job writes to.

    Attributes:
        array: whether it is one: what is not listed yet may still begin.
        forgotten: Slurm knows nothing of the job any more, nor does anybody where its output is.
    """

    files: tuple[Output, ...]
    array: bool
    forgotten: bool = False

    def of(self, task: object) -> list[str]:
        """Paths, each once: of one task of an array, or all (None)."""
        wanted = (each for each in self.files if task is None or each.task == str(task))
        return list(dict.fromkeys(each.path for each in wanted))

    def several(self, task: object) -> bool:
        """Whether there is, or will be, more than one to follow."""
        return len(self.of(task)) > 1 or (self.array and task is None)


def array_jobs(record: Record) -> dict[str, int]:
    """The first job of each run of an elastic array, by index, as far as they are noted; else none."""
    from hpctools.elastic.folder import runs_root
    from hpctools.submit.runs import array_runs

    found: dict[str, int] = {}
    with contextlib.suppress(HpctoolsError, ValueError):  # what cannot be read is not known
        for folder in array_runs(record.run, runs_root()) if record.run else []:
            jobs = [job.job_id for job in folder.jobs() if job.role == "baseline"]
            found |= {folder.path.name.rpartition("_")[2]: job for job in jobs[:1]}
    return found


def chosen(runs: Mapping[str, int], task: object, name: str, *, follow: bool) -> list[int]:
    """Jobs of an elastic array that are asked for: of one task, or all; none where it is no such array.

    Raises:
        UsageError: there is no such task, or several are to be followed.
    """
    if task is not None and runs and str(task) not in runs:
        raise UsageError(f"{name} has no task {task}", f"its tasks: {', '.join(runs)}")
    if task is None and runs and follow:
        raise several_files(name)
    return [job for index, job in runs.items() if task is None or index == str(task)]


def several_files(name: str) -> UsageError:
    """What is said of an array that somebody wants to follow."""
    return UsageError(
        "that array writes several files", f"follow one of its tasks: hp-logs --follow --task N {name}"
    )


def together(
    submission: Submission, first: int | None, jobs: Sequence[int], task: object, *, errors: bool
) -> Outputs:
    """Files of the jobs of a submission, which has several only where it is an elastic array.

    Args:
        first: the submission's own job; what is known of others is kept apart.

    Raises:
        UsageError: a task is asked for, and it is no array: whoever follows would wait for nothing.
        UnreachableError: as `outputs`.
    """
    found = [outputs(submission, job, "" if job == first else f"-{job}", errors=errors) for job in jobs]
    files = tuple(file for each in found for file in each.files)
    if task is not None and files and not any(each.array for each in found):
        raise UsageError(f"job {jobs[0]} is no array", "leave out --task")
    return Outputs(files, any(each.array for each in found), all(each.forgotten for each in found))


def note(submission: Submission, job: int) -> None:
    """Remember where a job that was just submitted writes: Slurm forgets it some minutes after its end."""
    with contextlib.suppress(HpctoolsError):
        for errors in (False, True):
            outputs(submission, job, errors=errors)


def outputs(submission: Submission, job: int, place: str = "", *, errors: bool = False) -> Outputs:
    """Files that the job writes its output to: more than one only of arrays and heterogeneous jobs.

    Those that slurmctld has forgotten (MinJobAge) are among them, where somebody asked in time, they are
    called as usual, or the accounting tells (from Slurm 24.11 on).

    Args:
        place: what is put to the name of the file in which it is remembered.
        errors: of standard error instead.

    Raises:
        UnreachableError: the controller does not answer, and nothing is known of where they are.
    """
    key = ("StdErr" if errors else "StdOut") + place
    since = _made(submission)
    known, usual = _remembered(submission, key), _usual(submission.folder, job)
    try:
        blocks = scripts.details(job)
    except UnreachableError:
        # What is there can be read all the same.
        if found := known or usual:
            return _gathered(found, since)
        raise
    if not blocks:
        found = _forgotten(submission.folder, job, key.removesuffix(place), known, usual)
        if found:
            _remember(submission, key, found)
        return replace(_gathered(found, since), forgotten=not found)
    stated = _stated(blocks, key.removesuffix(place))
    array = any(fields.get("ArrayTaskId") for fields in blocks)
    if array:
        named_as_usual = {each.path for each in stated + known} & {each.path for each in usual}
        stated = _merged(known, usual if named_as_usual else [], stated)
    if stated:
        _remember(submission, key, stated)
    waiting = {fields.get(key.removesuffix(place), "") for fields in blocks if not fields.get("BatchHost")}
    return _gathered(stated or known or usual, since, {_filled(each, "") for each in waiting}, array=array)


def _gathered(
    files: list[Output], since: float, waiting: Collection[str] = (), *, array: bool = False
) -> Outputs:
    """Those that are there.

    Args:
        since: a file that was written last before then is another job's.
        waiting: names of a job that no node has begun: what fits them is another job's, too.
    """
    found = [(each, _real(each.path, float("inf") if each.path in waiting else since)) for each in files]
    real = [replace(each, path=path) for each, path in found if path]
    return Outputs(tuple(real), array or any(each.task for each in files))


def _real(path: str, since: float) -> str:
    """The file of a name in which Slurm fills in something; empty when there is none yet."""
    if "%" not in path or os.path.lexists(path):
        return path
    escaped = re.sub(r"%\d*[A-Za-z]", "*", glob.escape(path).replace("%%", "%"))
    fitting = {each: each.lstat().st_mtime for each in Path("/").glob(escaped.lstrip("/"))}
    return str(max((each for each in fitting if fitting[each] >= since), key=fitting.__getitem__, default=""))


def _made(submission: Submission) -> float:
    """When the submission began, by its lock, which is made then and never written; 0: not known."""
    try:
        return (submission.own / "lock").stat().st_mtime
    except OSError:
        return 0.0


def _stated(blocks: list[dict[str, str]], key: str) -> list[Output]:
    """What Slurm says; not of tasks that wait, for which it names none (slurm-7_4294967294.out)."""
    found = [
        Output(_filled(fields.get(key, ""), fields.get("BatchHost", "")), fields.get("ArrayTaskId", ""))
        for fields in blocks
    ]
    begun = [each for each in found if not each.task or each.task.isdecimal()]
    return [each for each in begun if each.path not in ("", "/dev/null")]


def _filled(path: str, host: str) -> str:
    """What Slurm's programs leave open in a name: the batch script runs on the first node, as task 0."""
    path = re.sub(r"%\d*[nt]", lambda open: "0".zfill(int(open[0][1:-1] or 1)), path)
    return path.replace("%N", host.partition(".")[0]) if host else path


def _forgotten(folder: Path, job: int, key: str, known: list[Output], usual: list[Output]) -> list[Output]:
    """Files of a job that slurmctld has forgotten; of an array some may never have been known here."""
    sure = known or (usual if key == "StdOut" else [])
    if sure and not any(each.task for each in sure):
        return sure
    told = [
        Output(_filled(str(folder / path), host), task)
        for task, host, path in accounted.outputs(job, key)
        if path not in ("", "/dev/null")
    ]
    return _merged(sure, told) or usual


def _merged(*lists: list[Output]) -> list[Output]:
    """All, each once, in the order in which they became known: a line that broke goes on in that."""
    return list(dict.fromkeys(each for files in lists for each in files))


def _usual(folder: Path, job: int) -> list[Output]:
    """Where sbatch writes when nobody says anything."""
    one = folder / f"slurm-{job}.out"
    if one.exists():
        return [Output(str(one))]
    found = [_by_name(str(each)) for each in folder.glob(f"slurm-{job}_*.out")]
    return sorted((each for each in found if each.task), key=lambda each: int(each.task))


def _by_name(path: str) -> Output:
    ending = re.search(r"_(\d+)$", Path(path).stem)
    return Output(path, ending[1] if ending else "")


def _remember(submission: Submission, key: str, files: list[Output]) -> None:
    """Slurm forgets where a job's output is; an array's tasks are told one after the other."""
    if files == _remembered(submission, key):
        return
    text = "\0".join(f"{each.task}:{each.path}" for each in files)
    with contextlib.suppress(OSError):  # a full disk: then it is asked again
        (submission.own / key).write_text(text, encoding="utf-8", errors="surrogateescape")


def _remembered(submission: Submission, key: str) -> list[Output]:
    try:
        text = (submission.own / key).read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError:
        return []
    entries = [(each, re.match(r"(\d*):", each)) for each in text.split("\0") if each]
    # An older release wrote paths alone, which begin with a slash; of several each is a task's.
    older = _by_name if len(entries) > 1 else Output
    return [Output(each[m.end() :], m[1]) if m else older(each) for each, m in entries]


@dataclass
class Following:
    """A file that a job writes.

    Attributes:
        is_over: whether the job has ended; asked seldom.
        idle: called whenever there is nothing new.
    """

    path: Path
    is_over: Callable[[], bool]
    idle: Callable[[], None]
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def pieces(self, offset: int, *, follow: bool) -> Iterator[Piece]:
        """What is in the file from an offset on; with `follow` until the job is over.

        A file that became shorter (another job writes it anew) is read from its beginning.
        """
        asked, over = -_STATE_SECONDS, not follow
        while True:
            # Also of a job that is over by now, and was begun anew while nobody was connected.
            if (size := _size(self.path)) < offset:
                offset = 0
            # Without `follow` what there is by now: a job may write faster than a line carries.
            for data in _read(self.path, offset, None if follow else size):
                yield Piece(str(self.path), offset, data)
                offset += len(data)
            if over:
                return
            if self.clock() - asked >= _STATE_SECONDS:
                # What was written before it ended is still to be read.
                over, asked = self.is_over(), self.clock()
                if over:
                    continue
            self.idle()
            self.sleep(_LOOK_SECONDS)


def is_same(path: Path, offset: int, size: int, digest: str) -> bool:
    """Whether the bytes before an offset have a SHA-256 still; of older laptops nothing (0) is known.

    A job that was requeued while the line was broken may have written more than before by now.
    """
    if not 0 < size <= offset:
        return True
    try:
        with path.open("rb") as file:
            file.seek(offset - size)
            return hashlib.sha256(file.read(size)).hexdigest() == digest
    except OSError:
        return True  # whoever reads it says why not


def _size(path: Path) -> int:
    try:
        with path.open("rb") as file:  # NFS looks at the server when a file is opened
            return os.fstat(file.fileno()).st_size
    except OSError:
        return 0


def _read(path: Path, offset: int, end: int | None) -> Iterator[bytes]:
    """What is in a file from an offset on, up to another one; None: to its end, wherever that is then."""
    try:
        with path.open("rb", buffering=0) as file:
            os.lseek(file.fileno(), offset, os.SEEK_SET)
            while data := file.read(CHUNK if end is None else max(0, min(CHUNK, end - offset))):
                yield data
                offset += len(data)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RemoteError(
            f"cannot read {path} on the cluster: {error.strerror}", "see its permissions"
        ) from None


def job_is_over(job_id: int, task: object = None) -> bool:
    """Whether a job, or a task of an array, has ended; no while the controller does not answer."""
    try:
        asked = scripts.states(job_id, task if isinstance(task, int) else None)
        return not any(map(scripts.is_living, asked))
    except HpctoolsError:
        return False

"""A job's output files on the cluster, read while they grow."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hpctools.errors import HpctoolsError, RemoteError, UnreachableError
from hpctools.remote.submissions import Record, Submission
from hpctools.remote.wire import CHUNK
from hpctools.slurm import scripts

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


def output_files(submission: Submission, record: Record, *, errors: bool = False) -> list[Path]:
    """Files that the job writes its output to: more than one only of arrays and heterogeneous jobs.

    Args:
        errors: of standard error instead.

    Raises:
        UnreachableError: the controller does not answer, and nothing is known of where they are.
    """
    job = record.job_id
    if job is None:
        raise RemoteError(f"{record.id} was not submitted", "submit it again")
    key = "StdErr" if errors else "StdOut"
    try:
        said = [fields[key] for fields in scripts.details(job) if fields.get(key)]
    except UnreachableError:
        # What is there can be read all the same.
        if known := _remembered(submission, key) or _usual(submission.folder, job):
            return known
        raise
    stated = list(dict.fromkeys(path for path in said if path != "/dev/null" and "%" not in path))
    if stated:
        _remember(submission, key, stated)
        return [Path(path) for path in stated]
    return _remembered(submission, key) or _usual(submission.folder, job)


def _usual(folder: Path, job: int) -> list[Path]:
    """Where sbatch writes when nobody says anything."""
    one = folder / f"slurm-{job}.out"
    return [one] if one.exists() else sorted(folder.glob(f"slurm-{job}_*.out"))


def _remember(submission: Submission, key: str, paths: list[str]) -> None:
    """Slurm forgets where a job's output is; an array's tasks are told one after the other."""
    known = [str(path) for path in _remembered(submission, key)]
    if set(paths) <= set(known):
        return
    text = "\0".join(dict.fromkeys([*known, *paths]))
    with contextlib.suppress(OSError):  # a full disk: then it is asked again
        (submission.own / key).write_text(text, encoding="utf-8", errors="surrogateescape")


def _remembered(submission: Submission, key: str) -> list[Path]:
    try:
        text = (submission.own / key).read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError:
        return []
    return [Path(each) for each in text.split("\0") if each]


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
            for data in _read(self.path, offset):
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
            if _size(self.path) < offset:
                offset = 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read(path: Path, offset: int) -> Iterator[bytes]:
    try:
        with path.open("rb", buffering=0) as file:
            os.lseek(file.fileno(), offset, os.SEEK_SET)
            while data := file.read(CHUNK):
                yield data
    except FileNotFoundError:
        return
    except OSError as error:
        raise RemoteError(
            f"cannot read {path} on the cluster: {error.strerror}", "see its permissions"
        ) from None


def job_is_over(job_id: int) -> bool:
    """Whether a job has ended; no while the controller does not answer."""
    try:
        return not any(map(scripts.is_living, scripts.states(job_id)))
    except HpctoolsError:
        return False

"""A submission's folder on the cluster, its lock and its record; all login nodes see the same."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from hpctools.errors import RemoteError
from hpctools.remote.names import RECORD_FOLDER, is_id

State = Literal["receiving", "submitting", "submitted"]
LOCK_SECONDS = 60.0
_POLL_SECONDS = 0.1
_SIGN_SECONDS = 1.0


class NoFolder(RemoteError):
    """A submission's folder cannot be made on this node; another one may have the home that it lacks."""


@dataclass(frozen=True)
class Record:
    """What is known of a submission.

    Attributes:
        id: its client-made id.
        request: digest of what was asked for: an id is never used for something else.
        state: `submitting`: sbatch may have taken it or not.
        script: the batch script's path; empty when a run makes its own.
        suffix: how the id of an elastic run ends; empty where none is asked for.
        stem: how it begins; empty where that is not known (an older laptop's submission).
        runs: how many elastic runs are asked for; 0 where that is not known.
        job_id: None until it is known.
        run: the elastic run's id; empty when it is none.
        cluster: as sbatch says it, of several; mostly empty.
        stdout, stderr: what hp-submit said.
        marked: when the state was written, by the file system's clock, Unix seconds.
        nonce: made anew each time it is written: a coarse clock tells two writers nothing. Empty in records
            of older releases.
    """

    id: str
    request: str
    state: State = "receiving"
    script: str = ""
    suffix: str = ""
    job_id: int | None = None
    run: str = ""
    cluster: str = ""
    stdout: str = ""
    stderr: str = ""
    marked: float = 0.0
    nonce: str = ""
    stem: str = ""
    runs: int = 0


def _record(said: dict[str, Any]) -> Record:
    """Of a later release, too: what that has added is passed over; a state that we do not know is not."""
    record = Record(**{key: value for key, value in said.items() if key in Record.__dataclass_fields__})
    if record.state not in get_args(State):
        raise ValueError(f"its state is {record.state!r}")
    return record


@dataclass(frozen=True)
class Claim:
    """What was found where something can be had by one process alone.

    Attributes:
        mine: it is ours from now on.
        at: when it was taken, by the file system's clock, Unix seconds.
    """

    mine: bool
    at: float


def root(environment: Mapping[str, str]) -> Path:
    """Where the folders of submissions are: $HPCTOOLS_SUBMISSIONS, or ~/hp-runs."""
    stated = environment.get("HPCTOOLS_SUBMISSIONS")
    return Path(stated) if stated else Path(environment.get("HOME", "/nonexistent")) / "hp-runs"


@dataclass(frozen=True)
class Submission:
    """A submission's folder; the job runs in it."""

    folder: Path

    @property
    def own(self) -> Path:
        """What is ours in it."""
        return self.folder / RECORD_FOLDER

    def make(self) -> None:
        """Make the folder, unless it is there.

        Raises:
            NoFolder: it cannot be made.
        """
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            for each in (self.folder, self.own):  # mkdir's mode is for the last one only
                each.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise _cannot("make", self.own, error, NoFolder) from None

    def record(self) -> Record | None:
        """What is known of it; None before anything was written.

        Raises:
            RemoteError: the record cannot be read.
        """
        path = self.own / "record.json"
        try:
            return _record(json.loads(path.read_text(encoding="ascii")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise RemoteError(
                f"cannot read {path}: {error}",
                "see the file, and whether login nodes have the same release; squeue shows if there is a job",
            ) from None

    def write(self, record: Record) -> Record:
        """Replace the record, so that it survives a power cut; returns it with its time and nonce.

        Raises:
            RemoteError: it cannot be written.
        """
        path = self.own / "record.json"
        marked = replace(record, marked=self.now(), nonce=secrets.token_hex(8))
        temporary = self.own / f"record.{os.getpid()}"
        try:
            with temporary.open("w", encoding="ascii") as file:
                json.dump(asdict(marked), file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            _sync(self.own)
        except OSError as error:
            raise _cannot("write", path, error) from None
        return marked

    def now(self) -> float:
        """The time by the file system's clock, which all login nodes share."""
        probe = self.own / f"clock.{os.getpid()}"
        try:
            with probe.open("w") as file:
                return os.fstat(file.fileno()).st_mtime
        except OSError:
            return time.time()
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()

    def claim(self, name: str) -> Claim:
        """Take something that is had once: of several processes, on whichever nodes, one gets it.

        It does not need `flock`: making a file that is not there is a file server's own doing.

        Raises:
            RemoteError: it cannot be taken.
        """
        path = self.own / f"claim.{name}"
        try:
            with path.open("x") as file:
                return Claim(True, os.fstat(file.fileno()).st_mtime)
        except FileExistsError:
            return Claim(False, path.stat().st_mtime)
        except OSError as error:
            raise _cannot("write", path, error) from None

    @contextlib.contextmanager
    def alive(self) -> Iterator[None]:
        """Touch the record each second, for those who wait for whoever wrote it; see `touched`."""
        over = threading.Event()

        def touch() -> None:
            while not over.wait(_SIGN_SECONDS):
                with contextlib.suppress(OSError):
                    os.utime(self.own / "record.json")

        threading.Thread(target=touch, daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def touched(self) -> int:
        """Something that changes each second while who wrote the record is at work. No time to reckon with:
        it may be of another node's clock. 0 when it cannot be seen."""
        try:
            with (self.own / "record.json").open() as file:  # NFS looks at the server when a file is opened
                return os.fstat(file.fileno()).st_mtime_ns
        except OSError:
            return 0

    @contextlib.contextmanager
    def locked(self, waiting: Callable[[], None], seconds: float = LOCK_SECONDS) -> Iterator[int]:
        """Hold the submission's lock; yields its descriptor, which a child keeps locked when it inherits it.

        Args:
            waiting: called at times while somebody else holds it.

        Raises:
            RemoteError: somebody else held it all the time.
        """
        path = self.own / "lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _cannot("open", path, error) from None
        try:
            _take(descriptor, path, waiting, seconds)
            yield descriptor
        finally:
            os.close(descriptor)


def _take(descriptor: int, path: Path, waiting: Callable[[], None], seconds: float) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        except OSError as error:
            raise _cannot("lock", path, error) from None
        if time.monotonic() > end:
            raise RemoteError(
                f"an earlier connection of yours is still at work on {path.parent.parent.name}",
                "submit again with the same --submission in a minute: it is submitted once",
            )
        waiting()
        time.sleep(_POLL_SECONDS)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot(do: str, path: Path, error: OSError, kind: type[RemoteError] = RemoteError) -> RemoteError:
    return kind(
        f"cannot {do} {path} on the cluster: {error.strerror}",
        "free space or quota there, or set HPCTOOLS_SUBMISSIONS there to another shared folder",
    )


def find(name: str, environment: Mapping[str, str]) -> Submission | None:
    """The submission of that id; None when there is none."""
    found = Submission(root(environment) / name)
    return found if is_id(name) and found.own.is_dir() else None


def every(
    environment: Mapping[str, str], missed: Callable[[RemoteError], None] = lambda error: None
) -> list[tuple[Submission, Record]]:
    """All submissions that have a record, the newest first.

    Args:
        missed: is told of each whose record cannot be read.
    """
    folder = root(environment)
    names = [each.name for each in folder.iterdir() if is_id(each.name)] if folder.is_dir() else []
    found: list[tuple[Submission, Record]] = []
    for name in names:
        submission = Submission(folder / name)
        try:
            if record := submission.record():
                found.append((submission, record))
        except RemoteError as error:
            missed(error)
    return sorted(found, key=lambda pair: -pair[1].marked)


def as_json(submission: Submission, record: Record) -> dict[str, Any]:
    """What a laptop is told of it."""
    return {
        "id": record.id,
        "state": record.state,
        "job_id": record.job_id,
        "run": record.run,
        "cluster": record.cluster,
        "folder": str(submission.folder),
        "stdout": record.stdout,
        "stderr": record.stderr,
    }

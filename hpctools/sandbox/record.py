"""What a sandbox remembers of itself between commands: its ports, nodes and processes."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from hpctools.errors import SandboxError
from hpctools.sandbox.process import Identity


@dataclass(frozen=True)
class Record:
    """The sandbox as last written down.

    Attributes:
        id: its own name on this machine, also that of its cgroup branch.
        site_sha256: checksum of the site file that it was made from.
        nodes: how many compute nodes it was asked for.
        cgroup: how Slurm tracks processes in it: `v1` or `none`.
        ports: TCP port on 127.0.0.1 by daemon name.
        holder: the process that keeps its namespaces; pid 1 inside.
        processes: its daemons by name.
        slurm: the Slurm release that it runs, as `22.05.8`; empty in records from before it was noted.
        release: the root folder that this Slurm is installed under; `/` is the machine's own.
        accounts_sha256: checksum of the account tree that slurmdbd was brought to; empty before the first.
        maker: the program that made it for itself; empty where a person did.
    """

    id: str
    site_sha256: str
    nodes: int
    cgroup: str
    ports: dict[str, int] = field(default_factory=dict)
    holder: Identity | None = None
    processes: dict[str, Identity] = field(default_factory=dict)
    accounts_sha256: str = ""
    slurm: str = ""
    release: str = "/"
    maker: str = ""

    def with_process(self, name: str, identity: Identity) -> Record:
        """The record with one daemon's process replaced."""
        return replace(self, processes={**self.processes, name: identity})


def load(path: Path) -> Record | None:
    """Read a record; None when there is none.

    Raises:
        SandboxError: it cannot be read as a record.
    """
    try:
        raw = json.loads(path.read_text())
        return _record(raw)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise SandboxError(
            f"{path} is not a sandbox's record ({error})", f"remove the folder {path.parent} and run up again"
        ) from None


def _record(raw: dict[str, Any]) -> Record:
    holder = Identity(**raw["holder"]) if raw["holder"] else None
    processes = {name: Identity(**value) for name, value in raw["processes"].items()}
    return Record(**{**raw, "holder": holder, "processes": processes})


def unfinished(path: Path) -> Path:
    """What a `save` leaves beside a record when it is killed."""
    return path.with_suffix(".new")


def save(path: Path, record: Record) -> None:
    """Write a record so that a reader sees the old or the new one, whole."""
    temporary = unfinished(path)
    with temporary.open("w") as file:
        json.dump(asdict(record), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the sandbox's lock; it goes with the process, so a crash leaves no stale lock.

    Whoever holds it may remove its file: who waited for that one then takes the lock of the next.

    Raises:
        SandboxError: we may not, or another process holds it and `wait` is False.
    """
    while True:
        with _opened(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                raise SandboxError(
                    f"another command is changing the sandbox ({path})", "wait for it"
                ) from None
            if _is_at(path, file):
                yield
                return


def _opened(path: Path) -> IO[str]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w")
    except OSError as error:
        denied = isinstance(error, PermissionError)
        raise SandboxError(
            f"the sandbox in {path.with_suffix('')} cannot be changed: {error.strerror}",
            "run it with sudo, as it was made" if denied else "name another folder: --state",
        ) from None


def _is_at(path: Path, file: IO[str]) -> bool:
    """Whether an open file is the one that has its name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False

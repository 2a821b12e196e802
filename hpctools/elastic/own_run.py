"""Which run this process is a worker of: what its agent has told it, and whom it was meant for.

A process's environment goes on to all that it starts and to all jobs that it submits. None of them is the
worker: what is inherited by another job does not count, and the worker takes it out of its environment once
it has joined the run.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from hpctools.elastic.left_behind import started_by_another_job

RUN_DIR = "HPCTOOLS_RUN_DIR"
WORKER = "HPCTOOLS_WORKER"


@dataclass(frozen=True)
class OwnRun:
    """A run that we are a worker of.

    Attributes:
        path: its folder.
        worker: our name in it.
    """

    path: Path
    worker: str


def own_run(environ: Mapping[str, str]) -> OwnRun | None:
    """As an agent has told it; None: this process is no worker, or has inherited what was for another."""
    if RUN_DIR not in environ or started_by_another_job(environ):
        return None
    return OwnRun(Path(environ[RUN_DIR]), environ.get(WORKER, "worker"))


def keep_to_ourselves(environ: MutableMapping[str, str]) -> None:
    """From now on nothing that we start takes itself for this worker."""
    for name in (RUN_DIR, WORKER):
        environ.pop(name, None)

"""A worker's log in the run's folder; where that cannot be opened, in a file of the node's, or nowhere."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO


def opened(path: Path, warn: Callable[[str], None]) -> IO[bytes]:
    """A file to append a worker's output to, readable by its owner only.

    A full disk, a used-up quota or a folder that is not to be written must not keep a worker from training.

    Args:
        warn: told when it is another file than `path`, and which.
    """
    try:
        return open(path, "ab", opener=_private)
    except OSError as error:
        file, where = _elsewhere(path)
        warn(
            f"cannot write {path}: {error.strerror or error}; what it was for goes {where}, and the worker "
            "trains all the same; free space or quota there for the next one"
        )
        return file


def copied(chunk: bytes) -> None:
    """Print a part of a worker's standard error to ours; a full disk takes the copy, and nothing else."""
    try:
        sys.stderr.buffer.write(chunk)
        sys.stderr.flush()
    except OSError:
        return


def _elsewhere(path: Path) -> tuple[IO[bytes], str]:
    try:
        handle, name = tempfile.mkstemp(prefix=f"hpctools-{path.stem}-", suffix=path.suffix)
    except OSError:
        return Path(os.devnull).open("ab"), "nowhere"
    return os.fdopen(handle, "ab"), f"to {name} on {os.uname().nodename}"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

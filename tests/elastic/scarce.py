"""A node that has run out of something that a process needs."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WHAT: dict[str, tuple[Any, str, Exception]] = {
    "pipe": (os, "pipe", OSError(errno.EMFILE, os.strerror(errno.EMFILE))),
    "dup": (os, "dup", OSError(errno.EMFILE, os.strerror(errno.EMFILE))),
    "thread": (threading.Thread, "start", RuntimeError("can't start new thread")),
}


@contextlib.contextmanager
def scarce(monkeypatch: pytest.MonkeyPatch, what: str, before: int) -> Iterator[None]:
    """Of this there are so many left."""
    owner, name, error = WHAT[what]
    given, ours = itertools.count(), getattr(owner, name)

    def refused(*args: Any) -> Any:
        if next(given) >= before:
            raise error
        return ours(*args)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, refused)
        yield


def open_files() -> Counter[str]:
    """What this process has open, and by how many descriptors each: `pipe:[4711]`, say."""
    found = Counter[str]()
    for each in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            found[str(each.readlink())] += 1
    return found

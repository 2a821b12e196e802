"""Taking a sandbox down: interrupted anywhere, it can be done again."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpctools.errors import SandboxError
from hpctools.sandbox import fall, record
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.record import Record


class Ended(BaseException):
    """What Ctrl-C is: nobody catches it."""


def made(folder: Path) -> Sandbox:
    """A sandbox whose processes have ended, with files from before its record and from after it."""
    sandbox = Sandbox(folder / "state")
    for number in range(6):
        (sandbox.layout.root / f"before-{number}").mkdir(parents=True)
    (sandbox.layout.root / "link").symlink_to(folder)
    (sandbox.layout.tree / "var/lib/mysql/data").mkdir(parents=True)
    record.save(sandbox.layout.record, Record("hpctools-1", "", 1, "none", accounts_sha256="abc"))
    for number in range(6):
        (sandbox.layout.root / f"after-{number}").write_text("data")
    return sandbox


def end_at(call: int, patch: pytest.MonkeyPatch) -> None:
    """Let so many files and folders be removed, and no more."""
    left = iter(range(call))

    def counted(really: Callable[..., None]) -> Callable[..., None]:
        def remove(*args: Any, **more: Any) -> None:
            if next(left, None) is None:
                raise Ended
            really(*args, **more)

        return remove

    for name in ("unlink", "rmdir"):
        patch.setattr(os, name, counted(getattr(os, name)))


@pytest.mark.parametrize("call", range(19))
def test_a_down_that_is_interrupted_is_done_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """Else the folder would be no sandbox any more to `down`, and full of strangers' files to `up`."""
    sandbox = made(tmp_path)
    with monkeypatch.context() as patch:
        end_at(call, patch)
        with pytest.raises(Ended):
            down(sandbox)
    assert sandbox.layout.record.exists() or list(sandbox.layout.root.iterdir()) == []
    if sandbox.layout.record.exists():  # for an `up` in its place there is nothing half removed
        left = record.load(sandbox.layout.record)
        assert left is not None
        assert (left.accounts_sha256, sandbox.layout.tree.exists()) == ("", False)
    down(sandbox)
    assert not sandbox.layout.root.exists() or list(sandbox.layout.root.iterdir()) == []


def test_who_waited_for_a_down_and_who_comes_after_it_do_not_both_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two `up`s in one folder: one had the lock of the file that `down` removed, one that of a new file."""
    sandbox, really, begun, over = made(tmp_path), fall._remove, threading.Event(), threading.Event()
    waits, holds = threading.Event(), threading.Event()
    lock = fcntl.flock

    def seen(*words: Any) -> None:
        if begun.is_set():
            waits.set()
        lock(*words)

    def wait_and_hold() -> None:
        with record.locked(sandbox.layout.lock):
            holds.set()
            over.wait(30)

    other = threading.Thread(target=wait_and_hold)

    def remove(*words: Any) -> None:
        begun.set()
        other.start()
        assert waits.wait(30)  # it has opened the lock, and it is ours
        really(*words)

    monkeypatch.setattr(fcntl, "flock", seen)
    monkeypatch.setattr(fall, "_remove", remove)
    assert down(sandbox)
    assert holds.wait(30)
    with pytest.raises(SandboxError, match="another command"), record.locked(sandbox.layout.lock, wait=False):
        pytest.fail("two held the lock")
    over.set()
    other.join(30)


def test_a_down_leaves_nothing_beside_the_folder_either(tmp_path: Path) -> None:
    assert down(made(tmp_path))
    assert list(tmp_path.iterdir()) == []

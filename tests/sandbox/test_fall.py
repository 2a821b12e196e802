"""Taking a sandbox down: interrupted anywhere, it can be done again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpctools.sandbox import record
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

"""Names are given without hard links, too, and still never taken from another file."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from hpctools.remote import settling
from hpctools.remote.settling import put_in_place, take_back

SAID = [errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK]


def without_links(monkeypatch: pytest.MonkeyPatch, code: int = errno.EXDEV, *, kernel: bool = True) -> None:
    """A file system that knows no hard links and, without `kernel`, no rename that overwrites nothing."""

    def link(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", link)
    if not kernel:
        monkeypatch.setattr(settling, "_renamed", lambda part, target: False)


@pytest.fixture
def part(tmp_path: Path) -> Path:
    (tmp_path / "part").write_text("whole")
    return tmp_path / "part"


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("code", SAID)
def test_a_name_is_given_without_links(
    part: Path, monkeypatch: pytest.MonkeyPatch, code: int, kernel: bool
) -> None:
    without_links(monkeypatch, code, kernel=kernel)
    target = part.with_name("target")
    put_in_place(part, target)
    assert (target.read_text(), part.exists()) == ("whole", False)


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("there", ["precious", "", None])
def test_what_is_there_stays(
    part: Path, monkeypatch: pytest.MonkeyPatch, kernel: bool, there: str | None
) -> None:
    """A file, an empty one, and a link that leads nowhere."""
    without_links(monkeypatch, kernel=kernel)
    target = part.with_name("target")
    if there is None:
        target.symlink_to("nowhere")
    else:
        target.write_text(there)
    with pytest.raises(FileExistsError):
        put_in_place(part, target)
    assert part.read_text() == "whole"
    assert target.is_symlink() if there is None else target.read_text() == there


def test_a_rename_that_fails_leaves_no_empty_file(part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_links(monkeypatch, kernel=False)

    def replace(self: Path, target: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(OSError, match="Input/output"):
        put_in_place(part, part.with_name("target"))
    assert [each.name for each in part.parent.iterdir()] == ["part"]


def test_another_failure_is_no_missing_link(part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_links(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        put_in_place(part, part.with_name("target"))


@pytest.mark.parametrize(
    ("there", "size", "stays"), [("", 5, False), ("", 6, True), ("x", 5, True), ("", 0, True)]
)
def test_only_the_empty_file_beside_the_whole_one_is_taken_back(
    part: Path, there: str, size: int, stays: bool
) -> None:
    target = part.with_name("target")
    target.write_text(there)
    take_back(part, target, size)
    assert (target.exists(), part.read_text()) == (stays, "whole")

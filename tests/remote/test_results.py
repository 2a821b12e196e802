"""Files of a run folder, while its job works in it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from hpctools.remote.results import results


@pytest.mark.parametrize("looks", range(4))
def test_a_file_that_its_job_removes_in_between_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """However often it was looked at before."""
    kept, removed = tmp_path / "kept", tmp_path / "checkpoint.tmp"
    kept.write_text("1")
    removed.write_text("2")
    (tmp_path / "link").symlink_to("kept")
    left, really = [looks], Path.stat

    def stat(path: Path, **how: Any) -> Any:
        if path == removed:
            left[0] -= 1
            if left[0] < 0:
                removed.unlink(missing_ok=True)
        return really(path, **how)

    monkeypatch.setattr(Path, "stat", stat)
    assert {each.path for each in results(tmp_path, ())} - {"checkpoint.tmp"} == {"kept"}


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("lr=[0.5].pt", ["lr=[0.5].pt"]),
        ("./lr=[0.5].pt", ["lr=[0.5].pt"]),
        ("lr=[01].pt", ["lr=1.pt"]),
        ("[a]/*", ["a/y"]),
        ("[a]", ["[a]/x"]),
    ],
)
def test_a_name_with_brackets_names_its_file(tmp_path: Path, pattern: str, wanted: list[str]) -> None:
    for name in ("lr=[0.5].pt", "lr=1.pt", "[a]/x", "a/y"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [each.path for each in results(tmp_path, [pattern])] == wanted


@pytest.mark.parametrize(
    ("pattern", "missed"),
    [
        ("", ["out", "out2"]),
        ("*.pt", ["out", "out2"]),
        ("out/a*", ["out"]),
        ("out", ["out"]),
        ("out/1/x", ["out"]),
        ("o*", ["out", "out2"]),
        ("logs", []),
        ("logs/*", []),
    ],
)
def test_a_folder_that_cannot_be_listed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, missed: list[str]
) -> None:
    for name in ("out", "out2", "logs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").touch()
    really = os.scandir

    def scandir(path: str) -> Any:
        if Path(path).name in ("out", "out2"):  # whoever runs the tests may be root, who lists everything
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return really(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found: dict[str, str] = {}
    listed = results(tmp_path, [pattern] if pattern else [], found)
    assert list(found) == missed
    assert all("Permission denied" in why for why in found.values())
    assert [each.path for each in listed] == ["logs/x"] * (pattern in ("", "logs", "logs/*"))

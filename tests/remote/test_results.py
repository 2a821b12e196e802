"""Files of a run folder, while its job works in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpctools.remote.results import results


def test_a_file_that_its_job_has_removed_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").write_text("1")
    (tmp_path / "link").symlink_to("kept")

    def walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
        yield str(folder), [], ["checkpoint.tmp", "kept", "link"]

    monkeypatch.setattr(os, "walk", walk)
    assert [each.path for each in results(tmp_path, ())] == ["kept"]

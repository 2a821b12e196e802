"""What goes along under which name, and what is said of the rest."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpctools.errors import SubmitError
from hpctools.remote.uploading import uploads

NOBODY = 65534


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A present folder, with links beside it and in it."""
    (tmp_path / "work").mkdir()
    for folder in (tmp_path, tmp_path / "work"):
        (folder / "v3").mkdir()
        (folder / "v3/a.pt").write_text("3")
        (folder / "current").symlink_to("v3")
        (folder / "step-900.pt").write_text("900")
        (folder / "latest.pt").symlink_to("step-900.pt")
        (folder / "..data").write_text("1")
    return tmp_path / "work"


def sent(word: str, cwd: Path) -> list[str]:
    said: list[str] = []
    paths = [path for path, _ in uploads(word, cwd, said.append)]
    assert said == []
    return paths


@pytest.mark.parametrize(
    ("word", "paths"),
    [
        ("latest.pt", ["latest.pt"]),
        ("../latest.pt", ["latest.pt"]),
        ("{above}/latest.pt", ["latest.pt"]),
        ("current", ["current/a.pt"]),
        ("../current", ["current/a.pt"]),
        ("../current/", ["current/a.pt"]),
        ("{above}/current", ["current/a.pt"]),
        ("../work/current/a.pt", ["a.pt"]),
        ("../v3/../latest.pt", ["latest.pt"]),
        ("./..data", ["..data"]),
        ("../..data", ["..data"]),
    ],
)
def test_a_link_goes_by_its_own_name(here: Path, word: str, paths: list[str]) -> None:
    """From below the present folder and from elsewhere, as a path from here and as a whole one."""
    assert sent(word.format(above=here.parent), here) == paths


def test_a_folder_above_goes_by_its_last_name(here: Path) -> None:
    assert "work/latest.pt" in {path for path, _ in uploads("..", here / "v3", lambda _: None)}


def test_a_folder_that_begins_with_dots_keeps_its_place(here: Path) -> None:
    """Only `..` itself leads out."""
    (here / "..old/deep").mkdir(parents=True)
    (here / "..old/deep/x").write_text("1")
    assert sent("..old/deep", here) == ["..old/deep/x"]


def test_an_empty_folder_is_told(here: Path) -> None:
    (here / "v3/out/deep").mkdir(parents=True)
    said: list[str] = []
    assert [path for path, _ in uploads("v3", here, said.append)] == ["v3/a.pt"]
    assert said == [f"{here / 'v3/out/deep'} is not sent: it is an empty folder; mkdir -p it in the script"]


@pytest.fixture
def by_nobody() -> Iterator[Path]:
    """A folder of somebody for whom modes count; root may do everything."""
    with tempfile.TemporaryDirectory() as top:
        if os.geteuid():
            yield Path(top)
            return
        os.chown(top, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield Path(top)
        finally:
            os.seteuid(0)


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100])
@pytest.mark.parametrize("word", ["data", "data/closed", "data/closed/x"])
def test_what_cannot_be_looked_into_is_not_left_out(by_nobody: Path, mode: int, word: str) -> None:
    closed = by_nobody / "data/closed"
    closed.mkdir(parents=True)
    (closed / "x").write_text("1")
    (by_nobody / "data/open").write_text("1")
    closed.chmod(mode)
    try:
        if word.endswith("x") and mode == 0o100:  # who knows its name may have it
            assert sent(word, by_nobody) == ["data/closed/x"]
            return
        with pytest.raises(SubmitError, match=r"cannot look into .*closed.*: Permission denied"):
            uploads(word, by_nobody, lambda _: None)
    finally:
        closed.chmod(0o700)

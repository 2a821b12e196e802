"""A site file that is not there is a wrong command line, whatever the command."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpctools.cli import main as cli

COMMANDS = (
    ("validate",),
    ("render", "--out", "out"),
    ("preflight",),
    ("plan",),
    ("drift",),
    ("apply", "--yes"),
)


def ended(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["hpctools", *words])
    with pytest.raises(SystemExit) as done:
        cli.main()
    return int(str(done.value.code or 0))


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: str(words[0]))
def test_a_site_file_that_is_not_there(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    command, *options = words
    (tmp_path / "folder").mkdir()
    for name, why in (("none.yaml", "no such file or directory"), ("folder", "is a directory")):
        if (command, name) == ("preflight", "folder"):
            continue  # it takes folders as well
        assert ended((command, name, *options), monkeypatch) == 2
        told = capsys.readouterr()
        assert f"{name}: found {why}, expected a readable file" in told.out + told.err
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: str(words[0]))
def test_a_site_file_with_a_mistake_is_a_problem_that_was_found(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.yaml").write_text("cluster: 3\n")
    command, *options = words
    assert ended((command, "site.yaml", *options), monkeypatch) == 1

"""What `hpctools sandbox exec` runs, and as whom."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpctools.cli.sandbox import sandbox
from hpctools.sandbox.cluster import Sandbox


@pytest.mark.parametrize("dashes", [[], ["--"]])
def test_options_behind_the_command_are_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dashes: list[str]
) -> None:
    """`squeue --user cv1` told of all people's jobs, as cv1, and `squeue --help` of hpctools."""
    asked: list[tuple[list[str], str, str]] = []

    def attach(_: Sandbox, argv: Sequence[str], *, user: str, host: str) -> int:
        asked.append((list(argv), user, host))
        return 0

    monkeypatch.setattr(Sandbox, "attach", attach)
    here = ["--state", str(tmp_path), "exec", "--user", "nlp1", *dashes]
    for words in (["squeue", "--user", "cv1"], ["squeue", "--help"], ["sinfo", "-N", "--host", "x"]):
        assert CliRunner().invoke(sandbox, [*here, *words]).exit_code == 0
        assert asked.pop() == (words, "nlp1", "")

"""What `hpctools` says when something fails."""

from __future__ import annotations

import pytest

from hpctools.cli import main
from hpctools.errors import CommandError, HpctoolsError, UnreachableError


def test_an_error_is_one_line_and_has_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main._failed(UnreachableError("nobody answers", "start it")) == 3
    assert main._failed(HpctoolsError("no good")) == 1
    assert capsys.readouterr().err == "hpctools: nobody answers; start it\nhpctools: no good\n"


def test_a_failed_command_shows_its_last_lines(capsys: pytest.CaptureFixture[str]) -> None:
    stderr = "\n".join(f"line {n}" for n in range(1, 13))
    assert main._failed(CommandError("it failed", argv=["x"], code=1, stderr=stderr)) == 1
    shown = "".join(f"  | line {n}\n" for n in range(3, 13))
    assert capsys.readouterr().err == f"hpctools: it failed\n{shown}"

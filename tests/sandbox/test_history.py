"""What the command for a past says, and what it refuses; tests/system/test_history.py has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from hpctools.cli.sandbox import sandbox
from hpctools.errors import SandboxError, UsageError
from hpctools.sandbox import history
from hpctools.sandbox.cluster import Sandbox


@pytest.mark.parametrize("days", [0, -1, 401])
def test_days_that_cannot_be_are_named(tmp_path: Path, days: int) -> None:
    with pytest.raises(UsageError, match=f"cannot make up {days} days; ask for 1 to 400 with --days"):
        history.load(Sandbox(tmp_path), 1_800_000_000, days)


def test_without_a_sandbox_there_is_nothing_to_load_into(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"no sandbox runs in .*; start it: hpctools sandbox up"):
        history.load(Sandbox(tmp_path), 1_800_000_000)


def test_the_command_says_that_the_jobs_are_made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def load(box: Sandbox, now: int, days: int | None, seed: int) -> int:
        asked.append((box.layout.root, days, seed))
        return len(asked) % 2 * 469

    monkeypatch.setattr(history, "load", load)
    here = ["--state", str(tmp_path), "history"]
    told = CliRunner().invoke(sandbox, [*here, "--days", "5", "--seed", "9"])
    assert (told.exit_code, told.output) == (0, "469 made-up jobs loaded; none of them ever ran\n")
    assert CliRunner().invoke(sandbox, here).output == "nothing to add\n"
    assert asked == [(tmp_path, 5, 9), (tmp_path, None, history.SEED)]
    assert "These jobs never ran" in CliRunner().invoke(sandbox, [*here, "--help"]).output

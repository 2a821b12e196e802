"""How commands end where nobody reads what they print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "slurm-conf/examples/university/site.yaml"
COMMANDS = ("hp_login", "hp_login_agent", "hp_logs", "hp_fetch", "hp_status", "hp_cancel", "hp_submit")


def unread(words: list[str], unbuffered: str) -> subprocess.CompletedProcess[str]:
    """What a command does that writes to a pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    program = f"import sys; from {words[0]} import main; sys.exit(main())"
    argv = [sys.executable, "-c", program, *words[1:]]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    try:
        return subprocess.run(
            argv, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, env=environment, check=False
        )
    finally:
        os.close(writing)


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_that_nobody_reads(command: str, unbuffered: str) -> None:
    done = unread([f"hpctools.cli.{command}", "--help"], unbuffered)
    assert (done.returncode, done.stderr) == (141, "")


def test_help_that_cannot_be_written() -> None:
    argv = [sys.executable, "-m", "hpctools.cli.hp_login", "--help"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "hp-login: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("module", ["hpctools.cli.hp_login", "hpctools.cli.main"])
def test_output_that_is_closed(module: str) -> None:
    words = ["--version"] if module.endswith("hp_login") else ["login", "render", str(SITE)]
    argv = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", module, *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["hpctools.cli.main", "plan", "/nowhere"], 2),
        (["hpctools.cli.main", "nonsense"], 2),
        (["hpctools.cli.main", "rollback", "--state", "/dev/null/x"], 1),
        (["hpctools.cli.hp_logs", "--cluster", "-", "x"], 2),
        (["hpctools.cli.hp_status", "nothing"], 1),
    ],
)
@pytest.mark.parametrize("unwritable", [True, False])
def test_an_error_that_nobody_can_be_told_keeps_its_exit_code(
    words: list[str], code: int, unwritable: bool
) -> None:
    """It was 1, or Python's own 120, with a traceback that nobody saw either."""
    into = "2>/dev/full" if unwritable else "2>&1 | true"
    line = f'set -o pipefail; "$@" {into}'
    argv = ["bash", "-c", line, "bash", sys.executable, "-m", *words]
    assert subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode == code


def test_findings_that_cannot_be_written_are_one_line() -> None:
    argv = ["bash", "-c", '"$@" >/dev/full', "bash", sys.executable, "-m", "hpctools.cli.main"]
    done = subprocess.run(
        [*argv, "validate", str(SITE)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (1, "hpctools: system: No space left on device\n")

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

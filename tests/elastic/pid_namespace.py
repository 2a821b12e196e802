"""A container as far as process numbers go: the command is process 1 there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

APART = ("unshare", "--pid", "--fork", "--kill-child")
SECONDS = 100.0


@cache
def _can_be_made() -> bool:
    return subprocess.run([*APART, "true"], capture_output=True, timeout=SECONDS, check=False).returncode == 0


def in_a_pid_namespace(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What became of the command; the test is skipped where there can be no such namespace."""
    if not _can_be_made():
        pytest.skip("this user may not make a PID namespace (unshare --pid)")
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2])])
    environ = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [*APART, *command], capture_output=True, text=True, env=environ, timeout=SECONDS, check=False
    )

"""Real disks that are full: the training goes on, it is said once, and the next one is whole again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "full_disk.py"
SMALL = 'mount -t tmpfs -o size=12m tmpfs "$1" && exec "$2" "$3" "$1" tmpfs'


def outcome(argv: list[str]) -> dict[str, Any]:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def assert_told_once_and_recovered(told: dict[str, Any], reason: str) -> None:
    """Of the saves of steps 1 to 4 the first works; that of step 9 does again, and nothing torn stays."""
    assert told["during"] == ["saved", "warning"]
    assert told["left"] == 1
    first, second = told["warnings"]
    assert first.startswith("the checkpoint of step 2 failed after ")
    assert reason in first
    assert "free space or quota there, or give another folder" in first
    assert second == "checkpoints are written again (step 9)"
    assert told["names"] == ["step-000000001", "step-000000009"]


def test_files_may_not_grow(tmp_path: Path) -> None:
    told = outcome([sys.executable, str(PROGRAM), str(tmp_path), "limit"])
    assert_told_once_and_recovered(told, "File too large")


@pytest.mark.system
def test_file_system_is_full(tmp_path: Path) -> None:
    """A tmpfs of 12 MB in a mount namespace of its own."""
    told = outcome(
        ["unshare", "--mount", "sh", "-c", SMALL, "sh", str(tmp_path), sys.executable, str(PROGRAM)]
    )
    assert_told_once_and_recovered(told, "No space left on device")

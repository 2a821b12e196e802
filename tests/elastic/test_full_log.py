"""Real disks that fill up under a worker's log: it trains on, and the log says what is missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "full_log.py"
SMALL = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" "$3" "$1" tmpfs'
PRINTED = "before\n" + "".join(f"full {number:05}\n" for number in range(2000)) + "of a child\nafter\n"


def outcome(argv: list[str], scratch: Path) -> dict[str, Any]:
    environ = {**os.environ, "TMPDIR": str(scratch)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def assert_that_it_went_on(told: dict[str, Any], folder: Path, reason: str) -> None:
    assert told["exited"] == {"worker": "b1.0.0", "code": 7, "tail": []}
    gaps = re.findall(r"\n\[hpctools: (\d+) bytes are missing here: (.*)\]\n", told["log"])
    there = re.sub(r"\n\[hpctools: .*\]\n", "", told["log"])
    assert {why for _, why in gaps} == {reason}
    assert len(there) + sum(int(count) for count, _ in gaps) == len(PRINTED)
    assert there.startswith("before\nfull 00000\n")
    assert there.endswith("after\n")
    log = folder / "run" / "logs" / "b1.0.0.out"
    assert told["warnings"] == [
        f"cannot write {log}: {reason}; what a worker prints there is dropped until it can be, and the "
        "worker trains all the same; free space or quota there in the meantime"
    ]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def test_a_log_that_may_not_grow(tmp_path: Path, scratch: Path) -> None:
    told = outcome([sys.executable, str(PROGRAM), str(tmp_path), "limit"], scratch)
    assert_that_it_went_on(told, tmp_path, "File too large")


@pytest.mark.system
def test_a_file_system_that_fills_up(tmp_path: Path, scratch: Path) -> None:
    """A tmpfs of 1 MB in a mount namespace of its own."""
    small = tmp_path / "small"
    small.mkdir()
    told = outcome(
        ["unshare", "--mount", "sh", "-c", SMALL, "sh", str(small), sys.executable, str(PROGRAM)], scratch
    )
    assert_that_it_went_on(told, small, "No space left on device")

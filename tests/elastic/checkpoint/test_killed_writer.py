"""SIGKILL of a writer: at every file-system call that it does, and at random moments."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "programs" / "killed_writer.py"
RANDOM_KILLS, SEED = 100, 3


def test_what_was_reported_as_saved_survives_and_nothing_torn_is_read(tmp_path: Path) -> None:
    """Two checkpoints, and then more and more; the writer dies at each of its calls, then at random.

    The program itself asserts after each kill that the newest whole checkpoint is the last reported one or a
    later one, and that its content is that of its step.
    """
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path), str(RANDOM_KILLS), str(SEED)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["calls"] > 50
    assert set(seen["left"]) == {"None", "100", "101"}, "kills before, between and after the commits"
    last = seen["random"] + 1
    assert last > 102
    assert seen["names"] == [f"step-{step:09d}" for step in (last - 1, last)], "and no leftovers"

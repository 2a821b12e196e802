"""Saves to a place that fills up and is freed again; run with little room, see test_full_disk.py.

    python full_disk.py FOLDER HOW

HOW is `tmpfs`: FOLDER lies on a small file system, which a file in it fills; `limit`: files may not grow
(RLIMIT_FSIZE), as with a quota. Prints what was saved and what was said, as one JSON line.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import torch
from checkpoint_rig import FakeDesk, read, state_after

from hpctools.elastic.checkpoint import saver
from hpctools.elastic.checkpoint.keeper import Keeper
from hpctools.elastic.checkpoint.settings import Checkpoint
from hpctools.testing.full_disk import fill


def main(root: Path, how: str) -> None:
    torch.set_num_threads(1)
    saver.FIRST_RETRY_SECONDS = 0.2
    desk = FakeDesk()
    state = state_after(0)
    settings = Checkpoint(every_seconds=0, every_steps=1)
    keeper = Keeper(settings, str(root / "checkpoints"), desk, lambda: state, dict)

    def train_to(step: int) -> None:
        state.update(state_after(step, elements=200_000))
        keeper.boundary(step)
        assert keeper._saver.wait(30)

    train_to(1)
    ballast = root / "ballast"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if how == "limit":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    else:
        fill(ballast)
    for step in range(2, 5):
        train_to(step)
    during = [name for name, _ in desk.told if name != "save_failed"]
    left = read(root / "checkpoints")[0]
    ballast.unlink(missing_ok=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    time.sleep(0.25)
    train_to(9)
    names = sorted(path.name for path in (root / "checkpoints").iterdir())
    warnings = [each["message"] for each in desk.of("warning")]
    print(json.dumps({"during": during, "left": left, "warnings": warnings, "names": names}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

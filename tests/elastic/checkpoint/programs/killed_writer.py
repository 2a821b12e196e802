"""Kills writers of checkpoints at every file-system call, and at random moments, and looks at what is left.

    python killed_writer.py FOLDER RANDOM_KILLS SEED

Prints one JSON line: how often which number of the newest whole checkpoint was found after a kill. Ends with
an assertion when a checkpoint that was reported as saved is not there, or one that is there is not whole.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import torch
from checkpoint_rig import RUN, Heard, read, state_after

from hpctools.elastic.checkpoint import dcp, newest
from hpctools.elastic.checkpoint.folder_store import FolderStore
from hpctools.elastic.checkpoint.saver import Saver

CALLS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.truncate")
FIRST, LAST = 100, 102
LIMIT = 30.0
assert dcp, "it takes long to import: the writers that are killed find it there"


def write_until_killed(root: Path, told: int, kill_at: int | None) -> None:
    """Save the steps one by one and tell each that is committed; end by SIGKILL at call number `kill_at`."""
    calls = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal calls
        if event in CALLS and str(root) in str(arguments[:1]):
            calls += 1
            if calls == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    heard = Heard()
    saver = Saver(FolderStore(root), 2, heard.reports)
    if kill_at is not None:
        sys.addaudithook(count)
    first = (newest_step(root) or FIRST - 1) + 1
    for step in range(first, LAST if kill_at is not None else first + 1000):
        saver.save(state_after(step), step, "test", RUN, {})
        assert saver.wait(LIMIT)
        assert not heard.warnings, heard.warnings
        os.write(told, f"{step}\n".encode())
    os.write(told, b"over\n")


def newest_step(root: Path) -> int | None:
    found = newest(str(root))
    return found.manifest.step if found is not None else None


def killed(root: Path, kill_at: int | None, after: float | None) -> tuple[int | None, bool]:
    """Run a writer until it is killed; the last step that it told, and whether it came to its end."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        write_until_killed(root, writing, kill_at)
        os._exit(0)
    os.close(writing)
    heard = b""
    deadline = time.monotonic() + (LIMIT if after is None else after)
    while (left := deadline - time.monotonic()) > 0 and select.select([reading], [], [], left)[0]:
        chunk = os.read(reading, 1 << 16)
        if not chunk:
            break
        heard += chunk
    if after is not None:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while chunk := os.read(reading, 1 << 16):
        heard += chunk
    os.close(reading)
    lines = heard.decode().split()
    steps = [int(line) for line in lines if line != "over"]
    return (steps[-1] if steps else None), "over" in lines


def check(root: Path, told: int | None) -> int | None:
    step, warnings = read(root)
    assert not warnings, warnings
    assert told is None or (step is not None and step >= told), (told, step)
    return step


def main(root: Path, random_kills: int, seed: int) -> None:
    torch.set_num_threads(1)
    left: Counter[str] = Counter()
    at, over = 0, False
    while not over:
        at += 1
        begun = time.monotonic()
        told, over = killed(root / f"at-{at}", at, None)
        took = time.monotonic() - begun  # at last: of all saves, undisturbed
        left[str(check(root / f"at-{at}", told))] += 1
        shutil.rmtree(root / f"at-{at}", ignore_errors=True)
    generator, before = random.Random(seed), 0
    for _ in range(random_kills):
        told, _ = killed(root / "random", None, generator.uniform(0.001, took))
        step = check(root / "random", told) or 0
        assert step >= before
        before = step
    write_one = Heard()
    saver = Saver(FolderStore(root / "random"), 2, write_one.reports)
    saver.save(state_after(before + 1), before + 1, "test", RUN, {})
    assert saver.wait(LIMIT)
    names = sorted(path.name for path in (root / "random").iterdir())
    print(json.dumps({"calls": at - 1, "left": left, "random": before, "names": names}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

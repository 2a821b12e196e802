"""A worker prints while its log's disk fills up and is freed again; see test_full_log.py.

    python full_log.py FOLDER HOW

HOW is `tmpfs`: FOLDER lies on a small file system, which a file in it fills; `limit`: files may not grow
(RLIMIT_FSIZE), as with a quota. Prints the worker's end, its log and what was warned of, as one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpctools.elastic.folder import RunFolder
from hpctools.elastic.processes import Post, Workers
from hpctools.elastic.spec import RunSpec
from hpctools.testing.full_disk import fill

WORKER = """
import pathlib, subprocess, time
def wait(word):
    began = time.monotonic()
    while not pathlib.Path(word).exists():
        assert time.monotonic() < began + 60
        time.sleep(0.01)
print("before", flush=True)
wait("full")
for number in range(2000):
    print(f"full {number:05}", flush=True)
subprocess.run(["echo", "of a child"], check=True)
pathlib.Path("printed").touch()
wait("free")
print("after", flush=True)
raise SystemExit(7)
"""


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not what():
            await asyncio.sleep(0.01)


async def scene(folder: RunFolder, how: str, words: Path) -> dict[str, Any]:
    said: dict[str, dict[str, Any]] = {}
    warnings: list[str] = []

    def say(kind: str, **told: Any) -> None:
        said[kind] = told
        warnings.extend([told["message"]] if kind == "warning" else [])

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if how == "limit":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    workers = Workers(Post(folder, folder.spec(), "b1", say))
    workers.spawn(0)
    workers.expect_no_restart(60.0)
    log, ballast = folder.logs / "b1.0.0.out", folder.path / "ballast"
    await until(lambda: log.exists() and log.read_bytes() == b"before\n")
    if how == "tmpfs":
        fill(ballast)
    (words / "full").touch()
    await until(lambda: (words / "printed").exists() or "exited" in said)
    await until(lambda: bool(warnings) or "exited" in said)
    ballast.unlink(missing_ok=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (words / "free").touch()
    await asyncio.wait_for(workers.all_ended(), 60)
    return {"exited": said["exited"], "log": log.read_text(), "warnings": warnings}


def main(root: Path, how: str) -> None:
    words = Path(tempfile.mkdtemp())
    spec = RunSpec("t-1", "t", "u", "", 1, 2, 1, (sys.executable, "-c", WORKER), str(words), (), "/r", "now")
    print(json.dumps(asyncio.run(scene(RunFolder.create(root / "run", spec), how, words))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

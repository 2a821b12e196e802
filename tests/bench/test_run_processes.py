"""The processes of a run, found as the benches find them; real ones."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.run_processes import Proc, processes
from hpctools.elastic.forking.client import ForkServer
from hpctools.elastic.left_behind import STARTED_BY
from hpctools.python_command import python_command

LIMIT = 60.0
SLEEPS = "import pathlib, time; pathlib.Path('began').touch(); time.sleep(600)"


def found(run_dir: Path) -> list[Proc]:
    return list(processes(lambda pid: True, str(run_dir)))


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("starter", "baseline"), [("b0.0", True), ("r3.0", False)])
def test_a_worker_that_is_forked_is_found_and_its_server_is_none(
    tmp_path: Path, starter: str, baseline: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SLEEPS)
    words = python_command([sys.executable, str(script)])
    assert words is not None
    environ = {**os.environ, "HPCTOOLS_RUN_DIR": str(tmp_path), STARTED_BY: starter, "SLURMD_NODENAME": "n7"}

    async def forked() -> tuple[list[Proc], int, list[Proc]]:
        server = ForkServer(words, (), environ, tmp_path, print)
        try:
            await server.settled()
            before = found(tmp_path)
            pid, _ = server.fork({"HPCTOOLS_WORKER": f"{starter}.0"}, None, 2)
            await until((tmp_path / "began").exists)
            return before, pid, found(tmp_path)
        finally:
            await server.close()

    before, pid, then = asyncio.run(forked())
    assert before == []
    assert then == [Proc(pid, "worker", "n7", baseline)]

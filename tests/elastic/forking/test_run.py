"""A run whose workers are forked: killed and frozen workers, a killed agent, the same result."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from ledger_run import LedgerRun, training

from tests.elastic.test_run import DELAY, OPTIONS, assert_same_result, hurry, lone

__all__ = ["hurry", "lone"]
pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]


def command_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_forked(pid: int) -> bool:
    return "hpctools.elastic.forking.server" in command_of(parent_of(pid))


def struck(run: LedgerRun, prefix: str, number: signal.Signals) -> int:
    """The process of a worker that was forked, which has got a signal now."""
    pid = run.pid_of(prefix)
    assert is_forked(pid)
    os.kill(pid, number)
    run.wait_for_world(2)
    run.wait_for_world(3)
    return pid


def test_forked_workers_are_lost_and_come_back(
    tmp_path: Path, lone: list[dict[str, Any]], hurry: Path
) -> None:
    command = training(tmp_path / "out", *OPTIONS, "--delay", str(DELAY), "--hurry", str(hurry))
    with LedgerRun(tmp_path, command, (1, 3), preload=("sines",)) as run:
        run.capacity = 2
        run.wait_for_world(3)
        killed = struck(run, "r1000", signal.SIGKILL)
        again = run.pid_of("r1000")
        assert again != killed
        assert parent_of(again) == parent_of(run.pid_of("r1000")), "the node's server has forked both"
        struck(run, "r1001", signal.SIGSTOP)
        first = run.pid_of("r1000")
        run.replicas[1000].kill()
        run.wait_for_world(2)
        run.wait_for_world(3)
        run.wait(lambda: not Path(f"/proc/{first}").exists())
        hurry.touch()
        assert run.end() == 0
    assert_same_result(run, lone)
    assert [
        event.detail["message"] for event in run.events("warning") if "preload" in str(event.detail)
    ] == []

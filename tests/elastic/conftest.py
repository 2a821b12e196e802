"""Makes the helpers of this folder importable by its tests (pytest imports test files one by one)."""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.histories import forking

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def forking_process() -> Iterator[list[str]]:
    with forking("hpctools.elastic.sharded.loader") as launch:
        yield launch


@pytest.fixture
def gpu_to_itself() -> Iterator[None]:
    """No other test's run is on the GPU: nccl's kernels of one that many share hardly come on."""
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def forked_workers(forking_process: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of this test's runs are forked: each import of torch is 2.6 s of a processor.

    Not for what is about a worker's own process: between it and its agent is another one, which ends with
    it as it does, and which gets the agent's signals.
    """
    monkeypatch.setattr("ledger_run.FORKED", forking_process)

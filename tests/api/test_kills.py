"""The service is killed while it reconciles, at many points: the next one makes the same statements."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from hpctools.slurm.run import run

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("killed_reconciles.py")
ROWS = {
    "bill_day": 4,
    "job_batch": 4,
    "attribution_run": 2,
    "attributed_day": 4,
    "ledger_entry": 18,
    "clearing_entry": 13,
}


def kill(
    request: pytest.FixtureRequest, backend: str, at_statements: int, at_times: int, folder: Path
) -> Any:
    url = "sqlite" if backend == "sqlite" else request.getfixturevalue("postgres").url()
    seed = random.randrange(2**32)
    # One thread of polars: each process starts its own.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "POLARS_MAX_THREADS": "1"}
    words = [sys.executable, str(PROGRAM), url, str(at_statements), str(at_times), str(seed), str(folder)]
    told = json.loads(run(words, timeout=1100, env=environment).stdout)
    assert told["wrong"] == [], f"seed {seed}"
    expected = told["expected"]
    # What it is compared with: the whole bill, posted once.
    assert expected | {"statements": ""} == {
        "statements": "",
        "spent": "1257.2269135782",
        "rows": ROWS,
        "waiting": 0,
        "last": "done",
        "balance": "0",
        "audit": True,
    }
    return told


@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_killed_reconciliation(request: pytest.FixtureRequest, backend: str, tmp_path: Path) -> None:
    assert kill(request, backend, 8, 2, tmp_path)["killed"] == 10


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_reconciliations_killed_at_five_hundred_points(
    request: pytest.FixtureRequest, backend: str, tmp_path: Path
) -> None:
    """250 in each database."""
    assert kill(request, backend, 190, 60, tmp_path)["killed"] == 250

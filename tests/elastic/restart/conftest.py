"""Makes the helpers of this folder importable by its tests (pytest imports test files one by one)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ranks_run import MakeRun, RanksRun


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    return lambda nodes, *options, **more: RanksRun(tmp_path, nodes, *options, **more)

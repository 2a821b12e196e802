"""The story that `./dev demo` tells is true."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hpctools.slurm import run

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_the_quick_story_makes_every_observation_and_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "HPCTOOLS_SANDBOX": str(tmp_path / "state"), "PYTHONPATH": str(ROOT)}
    told = run.run(
        [sys.executable, "-m", "demo", "--quick", "--down"],
        timeout=220,
        check=False,
        env=environment,
        cwd=ROOT,
    )
    assert told.code == 0, told.stdout + told.stderr
    assert "not observed" not in told.stdout
    for claim in (
        "the baseline job trains on 2 nodes",
        "the run trains on 6 nodes",
        "exactly 2 replica jobs yielded",
        "was not touched",
        "training goes on at 4 nodes",
        "the weights are equal bit for bit",
        "a second reconciliation changes nothing",
    ):
        assert f"✓ {claim}" in told.stdout or claim in told.stdout, claim
    assert "goes on running" not in told.stdout
    assert not (tmp_path / "state").exists()

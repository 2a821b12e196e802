"""The demo takes down what it made itself, and nothing else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from demo import ours
from hpctools.sandbox import record
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.record import Record
from hpctools.slurm import run

ROOT = Path(__file__).resolve().parents[2]


def made(folder: Path, maker: str) -> Sandbox:
    """A sandbox whose processes have ended."""
    sandbox = Sandbox(folder / "state")
    sandbox.layout.root.mkdir()
    record.save(sandbox.layout.record, Record("hpctools-1", "", 1, "none", maker=maker))
    (sandbox.layout.root / "precious").write_text("jobs of a week")
    return sandbox


@pytest.mark.parametrize("words", [[], ["--down"]])
@pytest.mark.parametrize("readable", [True, False])
def test_somebody_elses_sandbox_is_left_alone(tmp_path: Path, words: list[str], readable: bool) -> None:
    sandbox = made(tmp_path, "")
    if not readable:
        sandbox.layout.record.write_text("{}")
    environment = {**os.environ, "HPCTOOLS_SANDBOX": str(sandbox.layout.root), "PYTHONPATH": str(ROOT)}
    # Neither would it come far with this one: there is no program on its path.
    done = run.run(
        [sys.executable, "-m", "demo", "--quick", *words],
        timeout=60,
        check=False,
        env={**environment, "PATH": ""},
        cwd=ROOT,
    )
    assert (sandbox.layout.root / "precious").exists()
    assert (done.code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    said = "was not made by ./dev demo, which would take it down; take it down yourself"
    assert (said if readable else "is not a sandbox's record") in done.stderr


def test_its_own_and_none_at_all_go(tmp_path: Path) -> None:
    sandbox = made(tmp_path, ours.MAKER)
    ours.take_down(sandbox)
    assert not sandbox.layout.root.exists()
    ours.take_down(sandbox)

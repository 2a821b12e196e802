"""`pytest --slurm`: what cannot be had is told last, and never as passed."""

import os
import sys
from pathlib import Path

import pytest

from hpctools.sandbox import releases
from hpctools.slurm.run import Completed, run

ROOT = Path(__file__).parents[1]
OTHERS = sorted(set(releases.SUITES) - {releases.own().name})


def collect(stated: str, shelf: Path) -> Completed:
    """Collect the tests of one file for these releases, with an empty shelf."""
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        "--slurm",
        stated,
    ]
    env = {**os.environ, releases.VARIABLE: str(shelf)}
    return run([*argv, "tests/system/test_releases.py"], timeout=60, env=env, cwd=ROOT, check=False)


def test_the_last_lines_name_what_was_not_tested(tmp_path: Path) -> None:
    done = collect("all", tmp_path)
    assert done.code == 0
    assert "test_words_that_a_release_knows[own-nothing]" in done.stdout
    assert done.stdout.splitlines()[-len(OTHERS) :] == [
        f"NOT TESTED: Slurm {name}: {tmp_path / name} has not been made" for name in OTHERS
    ]


def test_nothing_tested_at_all_is_no_success(tmp_path: Path) -> None:
    done = collect(OTHERS[0], tmp_path)
    assert done.code == pytest.ExitCode.NO_TESTS_COLLECTED
    assert done.stdout.splitlines()[-1].startswith(f"NOT TESTED: Slurm {OTHERS[0]}: ")


def test_a_release_that_there_is_not(tmp_path: Path) -> None:
    done = collect("19.05", tmp_path)
    assert done.code == pytest.ExitCode.USAGE_ERROR
    assert "--slurm: no release '19.05'" in done.stderr

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


TIERS = """
import pytest

def test_quick(): ...

@pytest.mark.slow
def test_slow(): ...

@pytest.mark.long
def test_long(): ...
"""


@pytest.mark.parametrize(
    ("options", "runs", "says"),
    [
        ([], ["quick"], "without the tests marked long and slow"),
        (["--slow"], ["quick", "slow"], "without the tests marked long"),
        (["--long"], ["quick", "slow", "long"], "all tests, in full"),
        (["--slow", "--long"], ["quick", "slow", "long"], "all tests, in full"),
    ],
)
def test_what_takes_long_runs_when_it_is_asked_for(
    tmp_path: Path, options: list[str], runs: list[str], says: str
) -> None:
    """The day's own tests stay short, CI's are more, the night's are all."""
    (tmp_path / "test_tiers.py").write_text(TIERS)
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.conftest",
    ]
    argv += ["-c", str(ROOT / "pyproject.toml"), *options, str(tmp_path / "test_tiers.py")]
    lines = run(argv, timeout=60, cwd=ROOT).stdout.splitlines()
    found = [line.strip() for line in lines if "<Function" in line]
    assert found == [f"<Function test_{name}>" for name in runs]
    assert says in lines

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
    return run([*argv, "--slow", "tests/system/test_releases.py"], timeout=60, env=env, cwd=ROOT, check=False)


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
    lines = would_run(tmp_path, TIERS, *options)
    assert found_in(lines) == [f"<Function test_{name}>" for name in runs]
    assert says in lines


def test_whoever_names_a_test_gets_it_however_long_it_takes(tmp_path: Path) -> None:
    lines = would_run(tmp_path, TIERS, at="::test_long")
    assert found_in(lines) == ["<Function test_long>"]


EVERYWHERE = """
import pytest

@pytest.mark.releases
def test_each(slurm_release): ...

@pytest.mark.releases(all="long")
def test_longer(slurm_release): ...
"""
AS_IF_ALL_WERE_THERE = """
from hpctools.sandbox import releases

releases.lack = lambda name: ""
"""


@pytest.mark.parametrize(
    ("stated", "options", "longer_on"),
    [
        ("all", [], ["own"]),
        ("all", ["--slow"], ["own"]),
        ("all", ["--long"], ["own", *OTHERS]),
        (OTHERS[-1], ["--slow"], [OTHERS[-1]]),
    ],
)
def test_what_takes_long_on_each_release_runs_on_one_and_at_night_on_all(
    tmp_path: Path, stated: str, options: list[str], longer_on: list[str]
) -> None:
    (tmp_path / "all_there.py").write_text(AS_IF_ALL_WERE_THERE)
    found = found_in(would_run(tmp_path, EVERYWHERE, "-p", "all_there", f"--slurm={stated}", *options))
    each_on = ["own", *OTHERS] if stated == "all" else [stated]
    expected = [*(f"each[{name}]" for name in each_on), *(f"longer[{name}]" for name in longer_on)]
    assert sorted(found) == sorted(f"<Function test_{name}>" for name in expected)


def would_run(folder: Path, tests: str, *options: str, at: str = "") -> list[str]:
    """What pytest says about a file of tests, of which it runs none."""
    (folder / "test_tiers.py").write_text(tests)
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
    argv += ["-c", str(ROOT / "pyproject.toml"), *options, f"{folder / 'test_tiers.py'}{at}"]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    return run(argv, timeout=60, cwd=ROOT, env=env).stdout.splitlines()


def found_in(lines: list[str]) -> list[str]:
    return [line.strip() for line in lines if "<Function" in line]

"""Our commands where the machine or the shell is not as they would like it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "slurm-conf/examples/university/site.yaml"
NAMELESS = 4242
NO_NAME = f"your uid {NAMELESS} has no name on this machine; see `getent passwd`: is its directory there?\n"


def done(command: str, *words: str, **more: str) -> tuple[int, str]:
    """What became of a command of somebody whose directory is away, with no more environment than given."""
    argv = [sys.executable, "-m", f"hpctools.cli.{command}", *words]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **more}
    options = {"user": NAMELESS, "group": NAMELESS, "extra_groups": []} if os.geteuid() == 0 else {}
    ended = subprocess.run(
        argv, env=environment, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, **options
    )  # type: ignore[call-overload]
    return ended.returncode, ended.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes a uid without a name")
@pytest.mark.parametrize("words", [(), ("--dry-run",), ("--sessions",)])
def test_hp_login_says_that_a_uid_has_no_name(words: tuple[str, ...]) -> None:
    assert done("hp_login", *words, HOME="/") == (1, f"hp-login: {NO_NAME}")
    code, said = done("hp_login", "--dry-run", HOME="/", LOGNAME="ada")
    assert (code, "no login node is known here" in said) == (3, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes a uid without a name")
@pytest.mark.parametrize("command", ["hp_status", "hp_cancel"])
def test_runs_are_nowhere_without_a_home(command: str) -> None:
    name = command.replace("_", "-")
    said = "your home folder is not known, and so not where your runs are; set HOME, or HPCTOOLS_RUNS"
    assert done(command, "train-3fa9c1") == (2, f"{name}: {said}\n")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("hp_status", ()),
        ("hp_status", ("train-3fa9c1",)),
        ("hp_cancel", ("train-3fa9c1",)),
        ("hp_submit", ("--dependency=afterok:train-3fa9c1", "--dry-run", "--", "true")),
    ],
)
def test_runs_are_in_one_place_from_every_folder(command: str, words: tuple[str, ...]) -> None:
    code, said = done(command, *words, HOME="/nowhere", HPCTOOLS_RUNS="~/runs")
    last = said.splitlines()[-1]
    assert (code, last.partition(";")[0]) == (
        2,
        f"{command.replace('_', '-')}: HPCTOOLS_RUNS is '~/runs', which is no absolute path",
    )


@pytest.mark.parametrize("words", [["validate", str(SITE)], ["validate", "--json", str(SITE)], ["--help"]])
def test_a_reader_that_goes_is_no_finding(words: list[str]) -> None:
    """Exit code 1 is: of `hpctools drift | head` the monitor was told that something differs."""
    line = 'set -o pipefail; "$@" | true'
    argv = ["bash", "-c", line, "bash", sys.executable, "-m", "hpctools.cli.main", *words]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.parametrize("words", [["up"], ["status"], ["exec", "true"], ["logs"], ["down"]])
def test_a_folder_that_is_gone_is_told(tmp_path: Path, words: list[str]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    line = 'rmdir "$PWD"; exec "$@"'
    argv = ["bash", "-c", line, "bash", sys.executable, "-m", "hpctools.cli.main", "sandbox", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("HPCTOOLS_SANDBOX", None)
    ended = subprocess.run(argv, cwd=gone, env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (
        1,
        "hpctools: the folder that you are in is gone, and the sandbox would be in it; "
        "go to one that is there (cd), or name one: --state FOLDER\n",
    )

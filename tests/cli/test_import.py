"""`hpctools import` as a command: what it refuses before it writes anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpctools.cli.import_ import import_
from hpctools.errors import UsageError

CLOUD = Path(__file__).parents[1] / "conf/existing/clusters/cloud"
ACCOUNTS = ("--dump", f"{CLOUD}/sacctmgr-dump.txt", "--qos", f"{CLOUD}/qos.txt")
WORDS = ("--folder", str(CLOUD), *ACCOUNTS, "--slurm", "22.05")


@pytest.mark.parametrize("other", ["site.yaml", "./site.yaml", "sub/../site.yaml", "link.yaml"])
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_two_files_of_one_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, force: list[str]
) -> None:
    """The facts took the place of the site file, which was said to be written."""
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("link.yaml").symlink_to("site.yaml")
    done = CliRunner().invoke(import_, [*WORDS, "--out", "site.yaml", "--facts-out", other, *force])
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == "--out and --facts-out name the same file; name two files"
    assert not Path("site.yaml").exists()


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_folder_is_no_file_to_write(tmp_path: Path, force: list[str]) -> None:
    """It was to be replaced with --force, and that was refused then."""
    done = CliRunner().invoke(import_, [*WORDS, "--out", str(tmp_path), *force])
    assert str(done.exception) == f"cannot write {tmp_path}: it is a folder; name a file"


def test_a_name_may_be_as_long_as_file_systems_have_it(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 125 + ".yaml")
    assert CliRunner().invoke(import_, [*WORDS, "--out", str(path)]).exit_code == 0
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_two_files_are_written(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("site.yaml", "facts.yaml")]
    words = [*WORDS, "--out", names[0], "--facts-out", names[1]]
    assert CliRunner().invoke(import_, words).exit_code == 0
    assert [Path(name).read_text().startswith("#") for name in names] == [True, True]


@pytest.mark.parametrize(
    ("cgroup", "options", "told"),
    [("v1", [], True), ("v1", ["--facts-out", "facts.yaml"], False), ("v2", [], False)],
)
def test_cgroup_v1_is_for_the_facts_file_since_a_plan_takes_v2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroup: str, options: list[str], told: bool
) -> None:
    """The plan after it wanted cgroup/v2 on nodes that have none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["hpctools.cli.import_"], "_cgroup", lambda: cgroup)
    done = CliRunner().invoke(import_, [*WORDS, "--out", "site.yaml", *options])
    hint = f"have cgroups v1, as this host has, and not v2: write it with --facts-out {CLOUD}/facts.yaml"
    assert (done.exit_code, hint in done.stderr) == (0, told)
    assert not options or "\ncgroup: v1\n" in Path("facts.yaml").read_text()

"""What a preflight boots: the bundle, and what else lies in the folder and stays there."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from hpctools.cli.preflight import preflight
from hpctools.conf import Bundle, File
from hpctools.conf.preflight import bundle_files
from hpctools.errors import UsageError
from tests.conf.plan.stage import bundle


def test_what_lies_in_the_folder_stays_but_for_what_an_earlier_bundle_brought(tmp_path: Path) -> None:
    made = bundle()
    store = tmp_path / ".hpctools"
    (store / "3").mkdir(parents=True)
    (store / "current").symlink_to("3")
    for name, text in {
        "slurm.conf": "ClusterName=old\n",
        "topology.conf": "SwitchName=gone Nodes=none-such\n",
    }.items():
        (store / "3" / name).write_text(text)
        (tmp_path / name).symlink_to(Path(".hpctools", "current", name))
    (tmp_path / "acct_gather.conf").write_text(
        "# Made by hpctools from the site file. As it was once.\nX=1\n"
    )
    (tmp_path / "job_submit.lua").write_text("return 0\n")
    (tmp_path / "more.conf").symlink_to(tmp_path / "job_submit.lua")
    (tmp_path / "slurmdbd.conf").write_text("StoragePass=secret\n")

    found = bundle_files(Bundle((File("slurm.conf", "ClusterName=new\n", 0o644),), made.accounts), tmp_path)
    assert found == {
        "slurm.conf": "ClusterName=new\n",
        "job_submit.lua": "return 0\n",
        "more.conf": "return 0\n",
    }
    assert bundle_files(made, tmp_path / "none") == {file.path: file.text for file in made.files}


def test_a_state_that_is_named_and_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    """Without it no job and no account is looked at, and the configuration would seem well."""
    (tmp_path / "slurm.conf").write_text("ClusterName=one\nSlurmctldHost=localhost\n")
    words = [str(tmp_path), "--state", str(tmp_path)]
    with pytest.raises(
        UsageError, match=r"no state that we may read: assoc_mgr_state: No such file.*--no-state"
    ):
        CliRunner().invoke(preflight, words, standalone_mode=False, catch_exceptions=False)

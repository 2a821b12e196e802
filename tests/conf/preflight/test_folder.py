"""What a preflight boots: the bundle, and what else lies in the folder and stays there."""

from pathlib import Path

from hpctools.conf import Bundle, File
from hpctools.conf.preflight import bundle_files
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

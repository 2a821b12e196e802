"""Which file system a path lies on, against stat(2) and by the words of a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.conf import mounts
from hpctools.conf.mounts import Mount, mount_of

TABLE = r"""
/dev/vda / ext4 rw 0 0
tmpfs /run tmpfs rw 0 0
server:/slurm /etc/slurm nfs4 rw 0 0
/dev/vdb /data/two\040words xfs rw 0 0
tmpfs /etc/slurm tmpfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/", Mount("/", "ext4")),
        ("/etc/passwd", Mount("/", "ext4")),
        ("/etc/slurm", Mount("/etc/slurm", "tmpfs")),  # the last of two
        ("/etc/slurm/.hpctools/7/slurm.conf", Mount("/etc/slurm", "tmpfs")),
        ("/etc/slurmdbd", Mount("/", "ext4")),
        ("/data/two words/none/yet", Mount("/data/two words", "xfs")),
        ("/run", Mount("/run", "tmpfs")),
    ],
)
def test_the_longest_mount_that_holds_it(
    path: str, found: Mount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mounts"
    table.write_text(TABLE.lstrip())
    monkeypatch.setattr(mounts, "_MOUNTS", table)
    assert mount_of(Path(path)) == found


def test_a_link_leads_to_the_file_system_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "etc").symlink_to("/proc/self")
    assert mount_of(tmp_path / "etc/status") == mount_of(tmp_path / "etc") == Mount("/proc", "proc")
    assert mount_of(Path("/proc")).kind == "proc"

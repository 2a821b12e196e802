"""Finding and making folders of Slurm releases, with programs that stand in for debootstrap and slurmctld."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpctools.errors import SandboxError
from hpctools.sandbox import releases

DEBOOTSTRAP = """#!/bin/sh
for folder; do case $folder in */.making-*) break ;; esac; done
mkdir -p "$folder/usr/sbin" "$folder/mnt"
{ending}
"""
CHROOT = """#!/bin/sh
echo slurm-wlm {version}
"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty shelf, on a machine whose own Slurm is 22.05.8."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv(releases.VARIABLE, str(tmp_path / "shelf"))
    monkeypatch.setattr(releases, "APART", ())
    stand_in(tmp_path, "slurmctld", "#!/bin/sh\necho slurm-wlm 22.05.8\n")
    stand_in(tmp_path, "chroot", CHROOT.format(version="24.11.5"))
    stand_in(tmp_path, "debootstrap", DEBOOTSTRAP.format(ending="exit 0"))
    monkeypatch.setattr(releases, "PROGRAMS", f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin")
    return tmp_path / "shelf"


def stand_in(folder: Path, name: str, text: str) -> None:
    """Put a program in the place of a real one."""
    path = folder / "bin" / name
    path.write_text(text)
    path.chmod(0o755)


def test_the_machines_own_needs_no_folder(shelf: Path) -> None:
    mine = releases.Installation((22, 5, 8), Path("/"))
    assert [releases.find(name) for name in ("", "22.05", "22.05.8")] == [mine] * 3
    assert not shelf.exists()


def test_a_folder_is_made_once_and_found(shelf: Path) -> None:
    with pytest.raises(
        SandboxError, match=r"24\.11 has not been made; make it: hpctools sandbox releases 24\.11"
    ):
        releases.find("24.11")
    assert releases.build("24.11") is True
    assert releases.find("24.11") == releases.Installation((24, 11, 5), shelf / "24.11")
    assert releases.build("24.11") is False
    assert sorted(path.name for path in shelf.iterdir()) == ["24.11", "24.11.lock"]


def test_another_recipe_makes_it_anew(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    releases.build("24.11")
    monkeypatch.setattr(releases, "PACKAGES", (*releases.PACKAGES, "hello"))
    assert "another recipe" in releases.lack("24.11")
    assert releases.build("24.11") is True
    assert releases.lack("24.11") == ""


def test_what_a_killed_builder_left_is_removed(shelf: Path) -> None:
    left = shelf / f"{releases.MAKING}24.11-0123"
    (left / "usr").mkdir(parents=True)
    releases.build("24.11")
    assert not left.exists()


@pytest.mark.parametrize(
    ("program", "text", "reason"),
    [
        ("debootstrap", DEBOOTSTRAP.format(ending="echo E: no such mirror >&2; exit 1"), "E: no such mirror"),
        ("chroot", CHROOT.format(version="26.11.1"), r"trixie carries Slurm 26\.11\.1, not 24\.11"),
    ],
)
def test_why_it_could_not_be_made_is_remembered(
    program: str, text: str, reason: str, shelf: Path, tmp_path: Path
) -> None:
    stand_in(tmp_path, program, text)
    with pytest.raises(SandboxError, match=reason):
        releases.build("24.11")
    assert [path.name for path in shelf.iterdir() if path.is_dir()] == []
    with pytest.raises(SandboxError, match=reason):
        releases.find("24.11")
    stand_in(tmp_path, "debootstrap", DEBOOTSTRAP.format(ending="exit 0"))
    stand_in(tmp_path, "chroot", CHROOT.format(version="24.11.5"))
    assert releases.build("24.11") is True
    assert releases.lack("24.11") == ""


def test_a_release_that_nobody_carries(shelf: Path) -> None:
    with pytest.raises(
        SandboxError, match=r"no installation of Slurm '21\.08' is known; there can be: 22\.05"
    ):
        releases.find("21.08")


def test_a_mark_that_cannot_be_read_is_told(shelf: Path) -> None:
    releases.build("24.11")
    (shelf / "24.11" / releases.MARK).write_text("{}")
    with pytest.raises(SandboxError, match=r"cannot be read; remove .*24\.11"):
        releases.find("24.11")

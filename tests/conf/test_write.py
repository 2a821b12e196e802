"""Writing a bundle: modes, what is left alone, and what happens when the disk refuses."""

import os
from pathlib import Path

import pytest

from hpctools.conf import AccountTree, Bundle, File, write
from hpctools.errors import HpctoolsError

NOBODY = AccountTree((), (), (), {}, ())


def bundle(*files: File) -> Bundle:
    return Bundle(files, NOBODY)


def test_files_appear_with_their_modes_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        written = write(bundle(File("a", "x\n"), File("b", "y\n", 0o600)), tmp_path / "new/folder")
    finally:
        os.umask(before)
    assert [path.name for path in written] == ["a", "b"]
    assert {path.name: (path.read_text(), path.stat().st_mode & 0o7777) for path in written} == {
        "a": ("x\n", 0o644),
        "b": ("y\n", 0o600),
    }
    assert sorted(path.name for path in (tmp_path / "new/folder").iterdir()) == ["a", "b"]


def test_what_is_right_is_left_alone(tmp_path: Path) -> None:
    wanted = bundle(File("a", "x\n"), File("b", "y\n", 0o600), File("c", "z\n"), File("d", "w\n"))
    write(wanted, tmp_path)
    kept = (tmp_path / "a").stat().st_ino
    (tmp_path / "b").chmod(0o644)
    (tmp_path / "c").write_bytes(b"\xff")
    (tmp_path / "d").unlink()
    (tmp_path / "d").symlink_to(tmp_path / "a")
    assert [path.name for path in write(wanted, tmp_path)] == ["b", "c", "d"]
    assert (tmp_path / "a").stat().st_ino == kept
    assert (tmp_path / "a").read_text() == "x\n"
    assert not (tmp_path / "d").is_symlink()
    assert write(wanted, tmp_path) == ()


def test_a_failure_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(bundle(File("a", "old\n")), tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HpctoolsError, match=r"cannot write .*: No space left on device; check the folder's"):
        write(bundle(File("a", "new\n")), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old\n"


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(HpctoolsError, match="cannot write"):
        write(bundle(File("a", "x")), tmp_path / "f")

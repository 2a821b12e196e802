"""The generation store: a folder's files are those of one whole generation at every instant."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from hpctools.conf.apply import fileset
from hpctools.conf.apply.fileset import StoredFile
from hpctools.conf.apply.generations import Generations
from hpctools.errors import HpctoolsError
from hpctools.slurm.run import run
from tests.conf.apply.killing import killed_at

NAMES = ("cgroup.conf", "gres.conf", "slurm.conf", "slurmdbd.conf", "topology.conf")
ME = (os.getuid(), os.getgid())


def files(word: str, *names: str) -> dict[str, StoredFile]:
    return {
        name: StoredFile(name, f"# {word}\n".encode(), 0o600 if "dbd" in name else 0o644, ME)
        for name in names or NAMES
    }


def texts(folder: Path) -> dict[str, str]:
    """What a daemon reads under the names that may be managed."""
    return {name: file.content.decode() for name, file in fileset.read(folder, NAMES).items()}


def told(found: Mapping[str, StoredFile]) -> dict[str, str]:
    return {name: file.content.decode() for name, file in found.items()}


def by_hand(folder: Path) -> Path:
    """A folder that somebody wrote by hand: two files of ours, one that is not."""
    folder.mkdir()
    (folder / "slurm.conf").write_text("# by hand\n")
    (folder / "slurmdbd.conf").write_text("# by hand\n")
    (folder / "slurmdbd.conf").chmod(0o600)
    (folder / "accounting.conf").write_text("# not managed\n")
    return folder


def put(folder: Path, wanted: Mapping[str, StoredFile]) -> None:
    """What an apply does with the files."""
    store = Generations(folder)
    store.adopt(wanted)
    before = store.current
    number = store.stage(wanted)
    store.switch(number)
    store.tidy(keep=() if before is None else (before,))


def test_a_first_generation_takes_the_folder_over(tmp_path: Path) -> None:
    folder = by_hand(tmp_path / "slurm")
    put(folder, files("new"))
    assert texts(folder) == told(files("new"))
    assert {path.name: str(path.readlink()) for path in folder.iterdir() if path.is_symlink()} == {
        name: f".hpctools/current/{name}" for name in NAMES
    }
    assert (folder / "accounting.conf").read_text() == "# not managed\n"
    assert stat.S_IMODE((folder / "slurmdbd.conf").stat().st_mode) == 0o600
    # What was there is generation 0.
    assert (folder / ".hpctools/0/slurm.conf").read_text() == "# by hand\n"
    assert stat.S_IMODE((folder / ".hpctools/0/slurmdbd.conf").stat().st_mode) == 0o600


def test_adopting_changes_no_text_and_is_done_once(tmp_path: Path) -> None:
    folder = by_hand(tmp_path / "slurm")
    store = Generations(folder)
    before = texts(folder)
    store.adopt(NAMES)
    assert texts(folder) == before
    entries = sorted((path.name, path.lstat().st_ino) for path in folder.iterdir())
    store.adopt(NAMES)
    assert sorted((path.name, path.lstat().st_ino) for path in folder.iterdir()) == entries
    assert store.current == 0


def test_a_file_that_goes_leaves_no_link(tmp_path: Path) -> None:
    folder = by_hand(tmp_path / "slurm")
    put(folder, files("one"))
    put(folder, files("two", "slurm.conf", "slurmdbd.conf"))
    assert sorted(path.name for path in folder.iterdir()) == [
        ".hpctools",
        "accounting.conf",
        "slurm.conf",
        "slurmdbd.conf",
    ]
    assert sorted(path.name for path in (folder / ".hpctools").iterdir()) == ["1", "2", "current"]


def test_a_link_that_an_editor_replaced_becomes_one_again(tmp_path: Path) -> None:
    folder = by_hand(tmp_path / "slurm")
    put(folder, files("one"))
    run(["sed", "-i", "s/one/edited/", str(folder / "slurm.conf")], timeout=5)
    assert not (folder / "slurm.conf").is_symlink()
    Generations(folder).adopt(NAMES)
    assert (folder / "slurm.conf").is_symlink()
    assert texts(folder) == {**told(files("one")), "slurm.conf": "# edited\n"}


def test_the_folder_may_be_a_link_to_a_versioned_one(tmp_path: Path) -> None:
    by_hand(tmp_path / "v3")
    (tmp_path / "etc").symlink_to("v3")
    put(tmp_path / "etc", files("new"))
    assert texts(tmp_path / "etc") == told(files("new"))
    assert (tmp_path / "etc").is_symlink()
    # Links are relative: the folder may be moved or mounted elsewhere.
    (tmp_path / "v3").rename(tmp_path / "v4")
    assert texts(tmp_path / "v4") == told(files("new"))


def test_modes_and_owners_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "slurm"
    folder.mkdir()
    wanted = files("new")
    wanted["slurm.conf"] = StoredFile("slurm.conf", b"x", 0o640, (64030, 100))
    previous = os.umask(0o077)
    try:
        put(folder, wanted)
    finally:
        os.umask(previous)
    found = fileset.read(folder, NAMES)
    assert found == wanted
    # Every account must come through to slurm.conf.
    walked = [folder / ".hpctools", folder / ".hpctools/0", folder / ".hpctools/1"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in walked] == [0o755] * 3


@pytest.mark.parametrize("begin", ["by hand", "managed", "edited", "empty"])
def test_killed_anywhere_the_folder_is_old_or_new_and_the_next_run_completes(
    begin: str, in_memory: Path
) -> None:
    """Every act of taking over, staging, switching and tidying is a place to be killed at."""
    new = files("new", "cgroup.conf", "slurm.conf", "slurmdbd.conf")
    points = 0
    for folder in _folders(in_memory, begin):
        points += 1
        old = texts(folder)
        ended = not killed_at(points, lambda folder=folder: put(folder, new))
        assert texts(folder) in ([told(new)] if ended else [old, told(new)]), f"killed at act {points}"
        put(folder, new)
        assert texts(folder) == told(new)
        strangers = [path.name for path in (folder / ".hpctools").iterdir() if "new" in path.name]
        assert strangers == []
        shutil.rmtree(folder)
        if ended:
            break
    assert points > 15


def _folders(parent: Path, begin: str) -> Iterator[Path]:
    for number in range(1, 400):
        folder = parent / f"{number}"
        by_hand(folder)
        if begin == "empty":
            (folder / "slurm.conf").unlink()
            (folder / "slurmdbd.conf").unlink()
        if begin in ("managed", "edited"):
            put(folder, files("one"))
        if begin == "edited":
            (folder / "slurm.conf").unlink()
            (folder / "slurm.conf").write_text("# edited\n")
        yield folder


@pytest.mark.system
@pytest.mark.parametrize("ballast", range(0, 29, 4))
def test_a_full_disk_changes_nothing(ballast: int, tmp_path: Path) -> None:
    """However few pages are left, the folder reads as before and the message says where there is no room."""
    full = tmp_path / "full"
    full.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=60k", "tmpfs", str(full)], timeout=5)
    try:
        folder = by_hand(full / "slurm")
        put(folder, files("one"))
        before = texts(folder)
        big = {name: StoredFile(name, b"x" * 4096 * 2, 0o644, ME) for name in NAMES}
        (full / "ballast").write_bytes(b"x" * ballast * 1024)
        with pytest.raises(HpctoolsError, match=r"cannot write .*No space left on device"):
            put(folder, big)
        assert texts(folder) == before
        assert Generations(folder).current == 1
    finally:
        run(["umount", str(full)], timeout=5)


@pytest.mark.system
def test_a_read_only_folder_changes_nothing(tmp_path: Path) -> None:
    folder = by_hand(tmp_path / "slurm")
    run(["mount", "--bind", "-o", "ro", str(folder), str(folder)], timeout=5)
    try:
        with pytest.raises(HpctoolsError, match="Read-only file system"):
            put(folder, files("new"))
        assert texts(folder) == {"slurm.conf": "# by hand\n", "slurmdbd.conf": "# by hand\n"}
    finally:
        run(["umount", str(folder)], timeout=5)


@pytest.mark.system
def test_a_file_that_is_a_mount_point_is_refused_before_anything_changes(tmp_path: Path) -> None:
    folder = by_hand(tmp_path / "slurm")
    run(["mount", "--bind", str(folder / "slurm.conf"), str(folder / "slurm.conf")], timeout=5)
    try:
        with pytest.raises(HpctoolsError, match="busy"):
            put(folder, files("new"))
        assert texts(folder) == {"slurm.conf": "# by hand\n", "slurmdbd.conf": "# by hand\n"}
    finally:
        run(["umount", str(folder / "slurm.conf")], timeout=5)

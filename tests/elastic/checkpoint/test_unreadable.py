"""A checkpoint that cannot be read just now is not a torn one: no older one takes its place in silence."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from checkpoint_rig import Training, Unwell, assert_is_of, read, rewrite, write

from hpctools.elastic.checkpoint import newest, resume_source
from hpctools.elastic.checkpoint.folder_store import FolderStore
from hpctools.elastic.checkpoint.reading import Unreadable
from hpctools.elastic.checkpoint.retention import prune
from hpctools.elastic.checkpoint.settings import Checkpoint
from hpctools.elastic.checkpoint.store import Abandoned, abandon, name_of
from hpctools.errors import ElasticError

FILES = ["manifest.json", "COMMITTED", "__0_0.distcp", ".metadata"]


@pytest.fixture
def unwell(monkeypatch: pytest.MonkeyPatch) -> Unwell:
    return Unwell(monkeypatch)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_what_can_be_read_a_moment_later_is_used(
    tmp_path: Path, unwell: Unwell, file: str, number: int
) -> None:
    write(tmp_path, 10, 20)
    unwell.refuse(f"{name_of(20)}/{file}", number=number, times=3)
    assert read(tmp_path) == (20, [])
    assert unwell.refused == 3


@pytest.mark.parametrize("file", FILES)
def test_what_stays_unreadable_ends_the_start_with_path_number_and_remedy(
    tmp_path: Path, unwell: Unwell, file: str
) -> None:
    write(tmp_path, 10, 20)
    unwell.refuse(f"{name_of(20)}/{file}")
    training = Training(tmp_path, Checkpoint())
    with pytest.raises(ElasticError) as caught:
        training.keeper.begin()
    assert unwell.refused == 5
    said = str(caught.value)
    assert said.startswith("cannot read ")
    assert "Input/output error (EIO)" in said
    assert str(tmp_path / name_of(20) / file) in said
    assert "5 times in 0 s" in said
    assert "an older checkpoint is not used in its place" in said
    assert training.desk.of("resumed") == []


def test_what_is_older_than_the_newest_whole_one_matters_to_nobody(tmp_path: Path, unwell: Unwell) -> None:
    write(tmp_path, 10, 20)
    unwell.refuse(f"{name_of(10)}/manifest.json")
    assert read(tmp_path) == (20, [])
    with pytest.raises(Unreadable):
        read(tmp_path, 15)
    unwell.refuse(f"{name_of(20)}/manifest.json")
    assert read(tmp_path, 15) == (10, []), "a roll back to before it"


def test_damage_is_passed_over_as_ever_and_said_before_the_error(tmp_path: Path, unwell: Unwell) -> None:
    write(tmp_path, 10, 20, 30)
    (tmp_path / name_of(30) / "COMMITTED").unlink()
    assert read(tmp_path)[0] == 20
    unwell.refuse(f"{name_of(20)}/.metadata")
    warnings: list[str] = []
    training = Training(tmp_path, Checkpoint())
    with pytest.raises(Unreadable):
        training.keeper.begin()
    warnings = [each["message"] for each in training.desk.of("warning")]
    assert warnings == [
        f"checkpoint {tmp_path}/{name_of(30)} is not used: it was never committed: its writer was interrupted"
    ]


@pytest.mark.parametrize("content", [b"", b"no pickle", b"\x80\x04K\x01.", b"\x80\x04cos\nnothing\n."])
def test_what_cannot_be_unpickled_is_damaged_whatever_its_checksum(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, 10, 20)
    folder = tmp_path / name_of(20)
    rewrite(folder, ".metadata", content)
    step, (warning,) = read(tmp_path)
    assert step == 10
    assert warning.startswith(f"checkpoint {folder} is not used: it is not understood: ")


def test_a_place_that_can_be_listed_again_is_read_and_is_not_empty(
    tmp_path: Path, unwell: Unwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 10)
    failures = [errno.ESTALE, errno.EIO]
    listed = Path.iterdir

    def iterdir(path: Path) -> Any:
        if failures:
            raise OSError(failures.pop(), "gone for a moment", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert_is_of(Training(tmp_path, Checkpoint()).keeper.begin(), 10)
    assert not failures


def test_retention_removes_nothing_that_could_not_be_read(tmp_path: Path, unwell: Unwell) -> None:
    write(tmp_path, 10, 20, 30, 40)
    abandon(FolderStore(tmp_path), Abandoned("train-1", 1, 2, 35))
    unwell.refuse(f"{name_of(10)}/manifest.json", f"{name_of(40)}/COMMITTED")
    assert prune(FolderStore(tmp_path), 1) == [name_of(20)]
    assert sorted(path.name for path in tmp_path.glob("step-*")) == [name_of(10), name_of(30), name_of(40)]


def test_who_asks_what_is_newest_is_not_told_an_older_one(tmp_path: Path, unwell: Unwell) -> None:
    write(tmp_path / "runs", 10, 20)
    unwell.refuse(f"{name_of(20)}/manifest.json")
    with pytest.raises(Unreadable, match=r"\(EIO\), at .*step-000000020/manifest\.json"):
        newest(str(tmp_path / "runs"))
    one = str(tmp_path / "runs" / name_of(20))
    with pytest.raises(Unreadable):
        resume_source(one, tmp_path)
    assert resume_source(str(tmp_path / "runs"), tmp_path) == str(tmp_path / "runs"), "its workers look again"


@pytest.mark.parametrize("below", ["", "run7"])
def test_a_link_to_what_is_not_mounted_here_is_no_empty_folder(
    tmp_path: Path, unwell: Unwell, below: str
) -> None:
    """As ~/scratch is one on a node without that file system: the training would begin at step 0."""
    (tmp_path / "scratch").symlink_to(tmp_path / "mounted")
    place = tmp_path / "scratch" / below
    training = Training(place, Checkpoint(every_seconds=0, every_steps=1))
    with pytest.raises(Unreadable) as caught:
        training.keeper.begin()
    assert f"{tmp_path}/scratch is a link to {tmp_path}/mounted, which is not there (5 times in 0 s)" in str(
        caught.value
    )
    training.go_to(1)
    training.keeper.close(finished=True)
    (warning,) = training.desk.of("warning")
    assert "which is not there; see what became of the storage" in warning["message"]
    (tmp_path / "mounted" / below).mkdir(parents=True)
    write(place, 10)
    assert_is_of(Training(place, Checkpoint()).keeper.begin(), 10)

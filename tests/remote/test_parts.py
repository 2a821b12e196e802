"""Files that cannot be kept here, among others that can."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from hpctools.remote import fetching, settling
from hpctools.remote.parts import Part
from tests.remote.test_fetching import ALL, CONTENT, PART, Served, There, bring


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    """Five files, `out0` to `out4`."""
    monkeypatch.setenv("HPCTOOLS_SUBMISSIONS", str(tmp_path / "hp-runs"))
    made = Served(tmp_path)
    for name in ALL:
        (made.folder / name).write_text(name[-1] * 1000)
    return made


def refusing(monkeypatch: pytest.MonkeyPatch, where: Any, program: str, word: str, number: int) -> None:
    """A file system that takes no name with a word in it."""
    really = getattr(where, program)

    def act(path: Any, *more: Any, **others: Any) -> Any:
        if word in str(path).split("/to/")[-1]:
            raise OSError(number, os.strerror(number))
        return really(path, *more, **others)

    monkeypatch.setattr(where, program, act)


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.ENAMETOOLONG, "File name too long; this file system takes no such long names"),
        (errno.EINVAL, "Invalid argument; this file system may not take such a name"),
        (errno.EILSEQ, "this file system may not take such a name"),
        (errno.EFBIG, "File too large"),
    ],
)
@pytest.mark.parametrize("size", [0, 1000, 3 << 20])
@pytest.mark.parametrize("past", [1 << 20, 0])
def test_a_file_that_cannot_be_kept_here_is_told_and_the_others_come(
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    why: str,
    size: int,
    past: int,
) -> None:
    """An encrypted home takes names of 143 bytes, a stick none with a colon and no file of 4 GB, say."""
    (served.folder / "out1:b").write_bytes(b"x" * size)
    (served.folder / "out3:b").write_bytes(b"x" * size)
    refusing(monkeypatch, os, "open", ":", number)
    monkeypatch.setattr(fetching, "_PAST", past)
    done = bring(served, tmp_path / "to")
    assert (done.new, list(done.gone)) == (ALL, ["out1:b", "out3:b"])
    assert done.gone["out1:b"].startswith(f"cannot write {tmp_path}/to/out1:b")
    assert why in done.gone["out1:b"]
    assert done.gone["out1:b"].endswith("name another place: --to")
    # What is much is not read past: the rest is asked for anew.
    assert len(served.exchanges) == (4 if size > past + 300_000 else 2)


def test_a_folder_that_cannot_be_made_here_is_no_reason_to_end(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (served.folder / "lr=0:1").mkdir()
    for name in ("a", "b"):
        (served.folder / "lr=0:1" / name).write_text(name)
    refusing(monkeypatch, Path, "mkdir", ":", errno.EINVAL)
    done = bring(served, tmp_path / "to")
    assert (done.new, list(done.gone)) == (ALL, ["lr=0:1/a", "lr=0:1/b"])
    assert "cannot make" in done.gone["lr=0:1/a"]


def test_a_name_that_only_the_whole_file_would_have_is_refused_alone(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = settling.put_in_place

    def put(part: Path, target: Path) -> None:
        if target.name == "out2":
            raise OSError(errno.ENAMETOOLONG, "File name too long")
        really(part, target)

    monkeypatch.setattr(fetching, "put_in_place", put)
    done = bring(served, tmp_path / "to")
    assert (done.new, list(done.gone)) == ([each for each in ALL if each != "out2"], ["out2"])


def test_what_was_refused_comes_where_it_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = There("model.pt")
    refusing(monkeypatch, os, "open", "model", errno.EINVAL)
    done = bring(there, tmp_path / "to")
    assert list(done.gone) == ["model.pt"]
    monkeypatch.undo()
    again = bring(there, tmp_path / "to")
    assert (again.new, again.gone) == (["model.pt"], {})
    assert (tmp_path / "to/model.pt").read_bytes() == CONTENT
    assert not (tmp_path / f"to/model.pt{PART}").exists()


@pytest.mark.parametrize("come", [b"", b"0" * 400, b"0" * 1000], ids=["begun", "half", "whole"])
def test_what_another_brings_is_left_to_it_and_the_others_come(
    served: Served, tmp_path: Path, come: bytes
) -> None:
    """Each cut off what the other had written, and in the end removed it."""
    (tmp_path / "to").mkdir()
    other = Part(tmp_path / f"to/out0{PART}")
    other.append(0, come)
    done = bring(served, tmp_path / "to")
    assert (done.new, list(done.gone)) == (ALL[1:], ["out0"])
    assert done.gone["out0"] == "another hp-fetch is bringing it here; fetch again when that is over"
    assert other.path.read_bytes() == come
    other.append(len(come), b"0")
    other.close()
    other.path.write_bytes(come)
    assert (bring(served, tmp_path / "to").new, other.path.exists()) == (["out0"], False)


def test_two_at_once_bring_each_file_once(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins as the first one has a whole file that is not in its place yet."""
    really, second = fetching.put_in_place, Served(tmp_path)
    found: list[Any] = []

    def meanwhile(part: Path, target: Path) -> None:
        monkeypatch.setattr(fetching, "put_in_place", really)
        found.append(bring(second, tmp_path / "to"))
        really(part, target)

    monkeypatch.setattr(fetching, "put_in_place", meanwhile)
    done = bring(served, tmp_path / "to")
    assert (done.new, done.present, done.gone) == (["out0"], ALL[1:], {})
    assert (found[0].new, list(found[0].gone)) == (ALL[1:], ["out0"])
    assert sorted(each.name for each in (tmp_path / "to").iterdir()) == ALL


def test_what_was_put_in_its_place_meanwhile_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the opening of the part and the lock the other one has become ready."""
    path, target = tmp_path / f"model.pt{PART}", tmp_path / "model.pt"
    path.write_bytes(CONTENT)
    really = fcntl.flock

    def flock(descriptor: int, how: int) -> None:
        if not target.exists():
            path.rename(target)
        really(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    part = Part(path)
    part.append(0, b"mine")
    part.close()
    assert (target.read_bytes(), path.read_bytes()) == (CONTENT, b"mine")

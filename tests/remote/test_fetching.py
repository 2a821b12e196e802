"""What a cluster sends lands in one folder, for nobody else, and no more than it said."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from hpctools.errors import RemoteError
from hpctools.remote.fetching import PART, Fetched, fetch
from hpctools.remote.wire import Message
from tests.remote.test_settling import without_links

CONTENT = b"weights"


class There:
    """A cluster that lists one file and sends some bytes for it."""

    def __init__(self, path: str, size: int = len(CONTENT), *, runs: bool = False) -> None:
        self.files = [{"path": path, "size": size, "runs": runs}]

    def again(self, attempt: Callable[[], Any]) -> Any:
        return attempt()

    @contextlib.contextmanager
    def exchange(self, request: Mapping[str, Any]) -> Iterator[There]:
        digest = {"digest": hashlib.sha256(CONTENT).hexdigest()}
        rest = CONTENT[request["files"][0][1] :] if request["op"] == "fetch" else b""
        self.said = [*([Message({}, rest)] if rest else []), Message(digest), Message({"result": {}})]
        yield self

    def result(self) -> Mapping[str, Any]:
        return {"files": self.files}

    def get(self) -> Message:
        return self.said.pop(0)


def bring(there: There, folder: Path) -> Fetched:
    return fetch(cast("Any", there), "train-0123456789ab", (), folder)


@pytest.fixture
def private() -> Iterator[None]:
    """A person whose files nobody else reads."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("private")
@pytest.mark.parametrize(("runs", "mode"), [(False, "0o600"), (True, "0o700")])
def test_what_is_fetched_is_as_private_as_the_person_wants(tmp_path: Path, runs: bool, mode: str) -> None:
    assert bring(There("out/model.pt", runs=runs), tmp_path).new == ["out/model.pt"]
    found = tmp_path / "out/model.pt"
    assert (found.read_bytes(), oct(found.stat().st_mode & 0o777)) == (CONTENT, mode)


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "", "a//x", ".hpctools/x", "a\0x"])
def test_a_path_that_leads_out_stops_everything(tmp_path: Path, path: str) -> None:
    with pytest.raises(RemoteError, match="lead out"):
        bring(There(path), tmp_path / "to")
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to/out").symlink_to(tmp_path)
    with pytest.raises(RemoteError, match="behind a link"):
        bring(There("out/x"), tmp_path / "to")
    assert not (tmp_path / "x").exists()


def test_more_than_was_said_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match="sends more of x"):
        bring(There("x", size=3), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kernel", [True, False])
def test_it_is_fetched_to_where_no_hard_links_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: bool
) -> None:
    """A stick with FAT; a file that is there is left alone even so."""
    without_links(monkeypatch, kernel=kernel)
    assert bring(There("model.pt"), tmp_path).new == ["model.pt"]
    assert (tmp_path / "model.pt").read_bytes() == CONTENT
    (tmp_path / "other.pt").write_text("mine")
    assert bring(There("other.pt"), tmp_path).other == ["other.pt"]
    assert (tmp_path / "other.pt").read_text() == "mine"


def test_a_name_that_was_half_given_is_given(tmp_path: Path) -> None:
    """Killed between the empty file and the rename over it."""
    (tmp_path / "model.pt").write_bytes(b"")
    (tmp_path / f"model.pt{PART}").write_bytes(CONTENT)
    assert bring(There("model.pt"), tmp_path).new == ["model.pt"]
    assert [each.name for each in tmp_path.iterdir()] == ["model.pt"]

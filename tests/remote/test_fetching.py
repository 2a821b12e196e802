"""What a cluster sends lands in one folder, for nobody else, and no more than it said."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hpctools.errors import HpctoolsError, RemoteError
from hpctools.remote import fetching, parts, results, serving, wire
from hpctools.remote.fetching import PART, Fetched, Wanted, fetch
from hpctools.remote.meter import Meter
from hpctools.remote.sending import send
from hpctools.remote.session import Exchange, _raise_what_it_says
from hpctools.remote.shipping import LocalFile, Shipment
from hpctools.remote.submissions import Record, Submission
from hpctools.remote.transport import LostConnection
from hpctools.remote.wire import VERSION, Message, Wire, WireClosed
from tests.remote.test_settling import without_links

NAME = "train-0123456789ab"
CONTENT = b"weights"
NEW = ("past_failures", "pieces")


class There:
    """A cluster that lists one file and sends some bytes for it."""

    def __init__(self, path: str, size: int = len(CONTENT), *, runs: bool = False) -> None:
        self.files = [{"path": path, "size": size, "runs": runs}]

    def again(self, attempt: Callable[[], Any]) -> Any:
        return attempt()

    @contextlib.contextmanager
    def exchange(self, request: Mapping[str, Any]) -> Iterator[There]:
        if request["op"] != "fetch":
            self.said = [Message({"result": {"files": self.files}})]
            yield self
            return
        digest = {"digest": hashlib.sha256(CONTENT).hexdigest()}
        rest = CONTENT[request["files"][0][1] :]
        self.said = [*([Message({}, rest)] if rest else []), Message(digest), Message({"result": {}})]
        yield self

    def result(self) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", self.get()["result"])

    def get(self) -> Message:
        return self.said.pop(0)

    def put(self, fields: Mapping[str, Any], data: bytes = b"") -> None:
        pass


class Served:
    """The cluster's side itself, in this process, for the run folder of one submission.

    Attributes:
        exchanges: requests so far: on a real line each is a channel, and a Python on the cluster.
        old: it is of a release that knew nothing of what is NEW.
        breaks: the line breaks after so many bytes, each time.
    """

    def __init__(self, folder: Path, *, old: bool = False, breaks: int = 10**9) -> None:
        self.folder, self.old, self.breaks = folder / "hp-runs" / NAME, old, breaks
        submission = Submission(self.folder)
        submission.make()
        submission.write(Record(NAME, "r", state="submitted", job_id=7))
        self.exchanges: list[Mapping[str, Any]] = []
        self.before_fetch: Callable[[], None] = lambda: None
        self.slept: list[float] = []
        self.sleep, self.tell = self.slept.append, print

    def forgive(self) -> None: ...

    def again(self, attempt: Callable[[], Any]) -> Any:
        for _ in range(4):
            with contextlib.suppress(LostConnection):
                return attempt()
        return attempt()

    @contextlib.contextmanager
    def exchange(self, request: Mapping[str, Any]) -> Iterator[Served]:
        self.exchanges.append(request)
        if request["op"] == "fetch":
            self.before_fetch()
        asked, said = bytearray(), bytearray()
        sent = {key: value for key, value in request.items() if not (self.old and key in NEW)}
        Wire(lambda _: b"", asked.extend).put({"version": VERSION, **sent})
        there = Wire(lambda size: bytes(take(asked, size)), said.extend)
        serving._answer(there, cast("Any", None))
        del said[self.breaks if request["op"] == "fetch" else len(said) :]
        self.wire = Wire(lambda size: bytes(take(said, size)), lambda _: None)
        yield self

    def get(self) -> Message:
        try:
            message = self.wire.get()
        except WireClosed:
            raise LostConnection("the connection broke", "is the network there?") from None
        _raise_what_it_says(message)
        return message

    def result(self) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", Exchange.result(cast("Any", self)))


class Watched(Meter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[int | str] = []

    def expect(self, size: int) -> None:
        self.said.append(size)

    def add(self, size: int) -> None:
        self.said.append(size)

    def clear(self) -> None:
        self.said.append("clear")


def take(data: bytearray, size: int) -> bytearray:
    taken = data[:size]
    del data[:size]
    return taken


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    monkeypatch.setenv("HPCTOOLS_SUBMISSIONS", str(tmp_path / "hp-runs"))
    made = Served(tmp_path)
    for number in range(5):
        (made.folder / f"out{number}").write_text(f"{number}" * 1000)
    return made


def bring(there: There | Served, folder: Path, meter: Meter | None = None) -> Fetched:
    done = Fetched()
    fetch(Wanted(NAME, (), folder), cast("Any", there), done, meter or Meter())
    return done


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


@pytest.mark.parametrize("length", [241, 242, 255])
def test_a_name_may_be_as_long_as_file_systems_have_it(tmp_path: Path, length: int) -> None:
    """That of its part while it comes was longer; a broken line goes on where it was all the same."""
    name = "x" * (length - 6) + "ä.pt" + "y"
    there = There(f"out/{name}")
    part = fetching._read(there.files[0]).part(tmp_path)
    part.parent.mkdir()
    part.write_bytes(CONTENT[:3])
    assert bring(there, tmp_path).new == [f"out/{name}"]
    assert [each.name for each in (tmp_path / "out").iterdir()] == [name]
    assert (tmp_path / "out" / name).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.EROFS, r"Read-only file system; name another place: --to"),
        (errno.ENOSPC, r"No space left on device; free space here"),
    ],
)
def test_what_cannot_be_written_here_is_told_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, why: str
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(RemoteError, match=why):
        bring(There("model.pt"), tmp_path)


ALL = [f"out{number}" for number in range(5)]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
@pytest.mark.parametrize("mode", ["a", "w"])
def test_a_file_that_its_job_still_writes_is_told_and_comes_later(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, mode: str
) -> None:
    """Half a checkpoint is none, and the whole one would be another file than that."""
    really = results.content

    def write() -> None:
        with (served.folder / "out1").open(mode) as file:
            file.write("more")

    def content(folder: Path, path: str, *more: int) -> Iterator[tuple[bytes, str]]:
        for piece in really(folder, path, *more):
            yield piece
            if path == "out1" and piece[0] and when == "meanwhile":
                write()

    if when == "before":
        served.before_fetch = write
    monkeypatch.setattr(results, "content", content)
    done = bring(served, tmp_path / "to")
    assert (done.new, done.changed) == (["out0", "out2", "out3", "out4"], ["out1"])
    monkeypatch.undo()
    monkeypatch.setenv("HPCTOOLS_SUBMISSIONS", str(tmp_path / "hp-runs"))
    served.before_fetch = lambda: None
    found = [bring(served, tmp_path / "to").new for _ in range(2)]
    assert ["out1"] in found
    assert (tmp_path / "to/out1").read_text() == (served.folder / "out1").read_text()


def test_of_a_file_that_was_emptied_nothing_stays(served: Served, tmp_path: Path) -> None:
    """An attempt that was cut off has left its beginning; then its job began it anew."""
    (served.folder / "out1").write_text("")
    (tmp_path / "to").mkdir()
    (tmp_path / f"to/out1{PART}").write_text("11111")
    assert bring(served, tmp_path / "to").new == ALL
    assert ((tmp_path / "to/out1").read_bytes(), len(list((tmp_path / "to").iterdir()))) == (b"", 5)


@pytest.mark.parametrize("when", ["whole", "half"])
def test_two_at_once_bring_what_there_is_and_say_so(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Without locks the other puts it in its place meanwhile: the first said that it could not be made."""

    def no_lock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(parts, "fcntl", SimpleNamespace(flock=no_lock, LOCK_EX=2, LOCK_NB=4))
    patched = ("_is", "put_in_place")[when == "whole"]
    really, other = getattr(fetching, patched), Served(tmp_path)
    found: list[Fetched] = []

    def meanwhile(*words: Any) -> Any:
        monkeypatch.setattr(fetching, patched, really)
        found.append(bring(other, tmp_path / "to"))
        return really(*words)

    monkeypatch.setattr(fetching, patched, meanwhile)
    done = bring(served, tmp_path / "to")
    assert (found[0].new, found[0].changed) == (ALL, [])
    assert (done.new, done.present, done.other, done.changed) == ([], ALL, [], [])
    assert sorted(each.name for each in (tmp_path / "to").iterdir()) == ALL


def test_many_files_come_on_one_exchange(served: Served, tmp_path: Path) -> None:
    """One asks for the list, one for all that it names."""
    assert bring(served, tmp_path / "to").new == ALL
    assert [each["op"] for each in served.exchanges] == ["files", "fetch"]
    assert [(tmp_path / "to" / name).read_text() for name in ALL] == [f"{n}" * 1000 for n in range(5)]


def test_more_files_than_one_request_may_name_come_on_several(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_TOGETHER", 2)
    assert bring(served, tmp_path / "to").new == ALL
    assert [len(each["files"]) for each in served.exchanges[1:]] == [2, 2, 1]


def test_paths_of_one_request_have_a_limit_together(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_REQUEST_BYTES", 9)
    assert bring(served, tmp_path / "to").new == ALL
    assert [len(each["files"]) for each in served.exchanges[1:]] == [2, 2, 1]


@pytest.mark.parametrize("old", [False, True])
def test_a_file_that_its_job_removes_meanwhile_is_told_and_the_others_come(
    served: Served, tmp_path: Path, old: bool
) -> None:
    """An older cluster ends the exchange with it; the next one goes on behind it."""
    served.old = old
    served.before_fetch = lambda: (served.folder / "out1").unlink(missing_ok=True)
    done = bring(served, tmp_path / "to")
    assert (done.new, list(done.gone)) == (["out0", "out2", "out3", "out4"], ["out1"])
    assert "No such file" in done.gone["out1"]
    assert len(served.exchanges) == (3 if old else 2)


def test_a_folder_that_cannot_be_listed_is_told_and_the_others_come(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path).name == "closed":  # root lists everything
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return really(path)

    (served.folder / "closed").mkdir()
    monkeypatch.setattr(os, "scandir", scandir)
    done = bring(served, tmp_path / "here")
    assert len(done.new) == 5
    assert list(done.gone) == ["closed"]
    assert "Permission denied" in done.gone["closed"]


def test_a_submission_that_is_gone_is_no_file_that_is(served: Served, tmp_path: Path) -> None:
    served.before_fetch = lambda: shutil.rmtree(served.folder)
    with pytest.raises(HpctoolsError, match="knows no submission"):
        bring(served, tmp_path / "to")


def test_what_is_here_already_is_not_read_on_the_cluster(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Size and time tell; of the same size and another time, the content does."""
    bring(served, tmp_path / "to")
    (tmp_path / "to/out0").write_text("mine")
    (tmp_path / "to/out1").write_text("0" * 1000)
    (tmp_path / "to/out2").write_text("2" * 1000)
    for name, seconds in (("out1", 5), ("out2", 7)):
        os.utime(tmp_path / "to" / name, (seconds, seconds))
    read: list[str] = []
    really = results.content
    monkeypatch.setattr(
        results, "content", lambda folder, path, *more: (read.append(path), really(folder, path, *more))[1]
    )
    done = bring(served, tmp_path / "to")
    assert read == ["out1", "out2"]
    assert (done.present, done.other) == (["out3", "out4", "out2"], ["out0", "out1"])


def test_each_file_may_take_all_attempts_of_a_bad_line(served: Served, tmp_path: Path) -> None:
    """It breaks in every second file, more often than one request is tried."""
    served.breaks = 1500
    for number in range(20):
        (served.folder / f"more{number:02}").write_text(f"{number:02}" * 500)
    assert len(bring(served, tmp_path / "to").new) == 25
    assert (tmp_path / "to/more19").read_text() == "19" * 500


def test_a_line_on_which_nothing_comes_is_given_up(served: Served, tmp_path: Path) -> None:
    """After a quarter of an hour: it was after twelve seconds without a network."""
    served.breaks = 0
    with pytest.raises(LostConnection):
        bring(served, tmp_path / "to")
    assert 880 < sum(served.slept) <= 900
    assert len(served.exchanges) == 1 + 5 * (len(served.slept) + 1)


def test_what_came_on_a_line_counts_when_it_is_away_afterwards(served: Served, tmp_path: Path) -> None:
    """Something comes after each long wait."""
    served.breaks = 0
    served.again = lambda attempt: attempt()  # type: ignore[method-assign]
    really, waits = served.sleep, iter(range(1000))

    def sleep(seconds: float) -> None:
        really(seconds)
        served.breaks = 1500 if next(waits) % 50 == 40 else 0

    served.sleep = sleep
    assert bring(served, tmp_path / "to").new == ALL
    assert sum(served.slept) > 900


@pytest.mark.parametrize("old", [False, True])
def test_a_long_list_comes_in_pieces(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """All of it on one line was more than a line may have; an older cluster knows nothing else."""
    served.old = old
    monkeypatch.setattr(wire, "LARGEST_LINE", 100_000)
    monkeypatch.setattr(wire, "CHUNK", 1000)
    monkeypatch.setattr(fetching, "_REQUEST_BYTES", 50_000)
    for number in range(0 if old else 2000):
        (served.folder / f"{number:04}-{'x' * 90}").touch()
    assert len(bring(served, tmp_path / "to").new) == (5 if old else 2005)


def test_it_is_shown_how_far_it_is(served: Served, tmp_path: Path) -> None:
    """Of what is still to come; after a break, of the rest."""
    served.breaks = 4500
    meter = Watched()
    (tmp_path / "to").mkdir()
    (tmp_path / f"to/out0{PART}").write_text("0" * 400)
    assert bring(served, tmp_path / "to", meter).new == ALL
    assert meter.said == [4600, 600, 1000, 1000, 1000, 1000, 1000, "clear"]


def test_it_is_shown_how_far_an_upload_is() -> None:
    meter = Watched()
    files = (LocalFile("job.sh", None, b"x" * 10), LocalFile("data", None, b"y" * 100))
    shipment = Shipment(NAME, {"op": "submit", "files": [each.offer() for each in files]}, files)
    there = There("x")
    send(cast("Any", there), shipment, meter)
    assert meter.said == [110, 10, 100, "clear"]

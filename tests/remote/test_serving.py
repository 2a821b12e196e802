"""The cluster's side, with connections that end at any byte: one job, whole files, nothing overwritten."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpctools.errors import UnreachableError
from hpctools.remote import once, serving
from hpctools.remote.receiving import Reception
from hpctools.remote.serving import Programs
from hpctools.remote.session import SickNode, _raise_what_it_says
from hpctools.remote.shipping import LocalFile
from hpctools.remote.wire import VERSION, Message, Wire, WireClosed, WireError
from hpctools.slurm import scripts
from hpctools.submit import suffix
from tests.remote.test_settling import without_links

NAME = "train-0123456789ab"
FILES = (
    LocalFile("job.sh", None, b"#!/bin/bash\necho hello\n"),
    LocalFile("data/a b\n'.csv", None, b"1,2\n" * 40),
    LocalFile("data/empty", None, b""),
)
ARGUMENTS = ["a b", "c'd\"e", "f\ng", "$(h)", "\udcff"]


@dataclass
class Cluster:
    """A login node whose hp-submit counts what it submits."""

    home: Path
    words: list[list[str]] = field(default_factory=list)

    def submit(self, words: Sequence[str]) -> int:
        self.words.append(list(words))
        print(json.dumps({"elastic": False, "job_id": len(self.words), "cluster": ""}))
        return 0

    def found(self, folder: Path, user: str, age: float, script: str) -> list[int]:
        """The queue."""
        return [n for n, words in enumerate(self.words, 1) if any(str(folder) in word for word in words)]

    def answer(self, sent: bytes, room: int = 10**9) -> list[Message]:
        """What is said to a request of which only some bytes come, on a line that breaks after so many."""
        rest, said = bytearray(sent), bytearray()

        def receive(size: int) -> bytes:
            data = bytes(rest[:size])
            del rest[:size]
            return data

        def send(data: bytes) -> None:
            said.extend(data[: room - len(said)])
            if len(said) >= room:
                raise WireClosed("the laptop is gone")

        wire = Wire(receive, send)
        try:
            serving._answer(wire, Programs(self.submit, self.submit, self.submit))
        except WireError:
            return []
        back = Wire(lambda size: b"", lambda _: None)
        back._buffer += said
        return [back.get() for _ in range(said.count(b"\n"))]


@pytest.fixture
def standard_input() -> Iterator[None]:
    """Submitting puts the lock into its place, and goes to the run folder."""
    kept, cwd, pwd = os.dup(0), Path.cwd(), os.environ.get("PWD", "/")
    yield
    os.dup2(kept, 0)
    os.close(kept)
    os.chdir(cwd)
    os.environ["PWD"] = pwd


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standard_input: None) -> Cluster:
    return arranged(tmp_path, monkeypatch)


def arranged(home: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(home)
    monkeypatch.setenv("HPCTOOLS_SUBMISSIONS", str(home / "hp-runs"))
    monkeypatch.setenv("HPCTOOLS_RUNS", str(home / "runs"))
    monkeypatch.setattr(scripts, "jobs_from", made.found)
    monkeypatch.setattr(scripts, "details", lambda job: [{"StdOut": f"/x/{job}.log"}])
    monkeypatch.setattr(once, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(once, "_LOOK_SECONDS", 0.0)
    return made


def request(eager: bool = True, **more: Any) -> bytes:
    """A whole submission, as a laptop sends it."""
    sent = bytearray()
    wire = Wire(lambda _: b"", sent.extend)
    asked = {"version": VERSION, "op": "submit", "id": NAME, "options": ["-p", "nlp"], "script": "job.sh"}
    asked |= {"arguments": ARGUMENTS, "files": [each.offer() for each in FILES], "eager": eager}
    wire.put({**asked, **more})
    for index, file in enumerate(FILES):
        wire.put({"file": index, "offset": 0}, file.data)
    wire.put({"end": True})
    return bytes(sent)


WHOLE = request()


@given(st.integers(0, len(WHOLE)), st.integers(0, 700))
@example(len(WHOLE), 100)
@settings(deadline=None, max_examples=60)
def test_cut_anywhere_and_sent_again_it_is_one_job(cut: int, room: int) -> None:
    """The way there ends after `cut` bytes, the way back after `room`; then both are whole."""
    kept, cwd = os.dup(0), Path.cwd()
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        cluster = arranged(Path(home), patch)
        cluster.answer(WHOLE[:cut], room)
        os.dup2(kept, 0)  # the process ends, and with it the lock that sbatch got
        (last,) = cluster.answer(WHOLE)
        os.dup2(kept, 0)
        os.close(kept)
        os.chdir(cwd)
        folder = Path(home) / "hp-runs" / NAME
        line = ["--json", "--yes", "-p", "nlp", str(folder / "job.sh"), *ARGUMENTS]
        assert cluster.words == [line]
        assert (last["result"]["job_id"], last["result"]["id"]) == (1, NAME)
        assert {each.path: (folder / each.path).read_bytes() for each in FILES} == {
            each.path: each.data for each in FILES
        }


def test_what_has_come_is_not_sent_again(cluster: Cluster) -> None:
    """A line that broke in the middle of a file: the cluster asks for the rest of it."""
    place = request(eager=False).index(FILES[1].data) + 30
    cluster.answer(request(eager=False)[:place])
    (first, *_) = cluster.answer(request(eager=False)[:0] or request(eager=False))
    # Nothing of a piece that is not whole is kept; the file before it is not in its place yet, but here.
    assert first["need"] == [[0, len(FILES[0].data)], [1, 0], [2, 0]]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"files": [{"path": "../x", "size": 0, "digest": "0" * 64}]}, "no path below the run folder"),
        ({"files": [{"path": "/etc/x", "size": 0, "digest": "0" * 64}]}, "no path below the run folder"),
        ({"files": [{"path": ".hpctools/lock", "size": 0, "digest": "0" * 64}]}, "hpctools' own"),
        ({"files": [{"path": "a"}]}, "cannot be understood"),
        ({"files": [{"path": p, "size": 0, "digest": "0" * 64} for p in ("a", "a/b")]}, "the same name"),
        ({"id": "../../etc"}, "no submission's id"),
        ({"script": "../x"}, "no path below the run folder"),
        ({"arguments": "x"}, "are no words"),
        ({"op": "reboot"}, "knows no 'reboot'"),
        ({"version": 99}, "does not know your requests"),
    ],
)
def test_a_request_that_reaches_out_is_refused(cluster: Cluster, more: dict[str, Any], why: str) -> None:
    (said,) = cluster.answer(request(**more))
    assert why in said["error"]["message"]
    assert cluster.words == []


def test_what_failed_before_it_was_submitted_is_marked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed file, and sbatch's no; never where an earlier attempt may have been taken elsewhere, nor
    where Slurm cannot be asked."""
    changed = WHOLE.replace(b"echo hello", b"echo HELLO")
    again = request(again=True).replace(b"echo hello", b"echo HELLO")
    assert [said.get("unmade") for said in cluster.answer(changed) + cluster.answer(again)] == [True, None]
    monkeypatch.setattr(cluster, "submit", lambda words: 1)
    (refused,) = cluster.answer(WHOLE)
    assert ("refused" in refused.fields, refused.get("unmade")) == (True, True)

    def deaf(*_: object) -> list[int]:
        raise UnreachableError("Slurm does not answer", "")

    monkeypatch.setattr(scripts, "jobs_from", deaf)
    (unsure,) = cluster.answer(WHOLE)
    assert ("error" in unsure.fields, unsure.get("unmade")) == (True, None)


def test_a_job_inherits_nothing_of_the_way_it_came(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """But its folder. An elastic run's id ends as the submission's; runs that the job starts do not."""
    seen: dict[str, str] = {}

    def submit(words: Sequence[str]) -> int:
        seen.update(os.environ, suffix=suffix.STATED.get())
        return Cluster.submit(cluster, words)

    monkeypatch.setattr(cluster, "submit", submit)
    before = dict(os.environ)
    cluster.answer(WHOLE)
    changed = {name: value for name, value in seen.items() if before.get(name) != value}
    assert changed == {"suffix": "0123456789ab", "PWD": str(cluster.home / "hp-runs" / NAME)}
    assert suffix.STATED.get() == ""


def test_what_arrives_changed_is_not_submitted(cluster: Cluster) -> None:
    (said,) = cluster.answer(WHOLE.replace(b"1,2\n1,2", b"1,2\n1,3", 1))
    assert "data/a b" in said["error"]["message"]
    assert "changed while it was sent" in said["error"]["message"]
    assert f"--submission {NAME}" in said["error"]["remedy"]
    assert cluster.words == []
    assert cluster.answer(WHOLE)[0]["result"]["job_id"] == 1


def test_a_file_that_is_there_is_never_overwritten(cluster: Cluster) -> None:
    target = cluster.home / "hp-runs" / NAME / "data"
    target.mkdir(parents=True)
    (target / "empty").write_text("precious")
    (said,) = cluster.answer(WHOLE)
    assert "is there already, with other content" in said["error"]["message"]
    assert ((target / "empty").read_text(), cluster.words) == ("precious", [])


@pytest.mark.parametrize("kernel", [True, False])
def test_where_no_hard_links_are_it_is_submitted_all_the_same(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, kernel: bool
) -> None:
    without_links(monkeypatch, kernel=kernel)
    (last,) = cluster.answer(WHOLE)
    folder = cluster.home / "hp-runs" / NAME
    assert last["result"]["job_id"] == 1
    assert {each.path: (folder / each.path).read_bytes() for each in FILES} == {
        each.path: each.data for each in FILES
    }


def test_a_full_quota_is_told_with_how_to_go_on(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under another id all would be sent anew, beside what fills the quota."""

    def full(part: Path, target: Path) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with monkeypatch.context() as patch:
        patch.setattr("hpctools.remote.receiving.put_in_place", full)
        (said,) = cluster.answer(WHOLE)
    assert said["error"]["message"].endswith("on the cluster: Disk quota exceeded")
    assert f"the same line with --submission {NAME}: it goes on" in said["error"]["remedy"]
    asked, said = cluster.answer(request(eager=False))
    assert asked["need"][0] == [0, len(FILES[0].data)]  # all of it is there
    assert said["result"]["job_id"] == 1


@pytest.mark.parametrize("eager", [True, False])
def test_who_was_killed_with_the_name_half_given_is_not_in_their_own_way(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, eager: bool
) -> None:
    """An empty file has taken the name; the whole one waits beside it, or has been begun anew."""
    without_links(monkeypatch, kernel=False)

    class Killed(BaseException):
        pass

    def replace(self: Path, target: Path) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        with pytest.raises(Killed):
            cluster.answer(WHOLE)
    script = cluster.home / "hp-runs" / NAME / "job.sh"
    assert script.read_bytes() == b""
    cluster.answer(WHOLE[: -len(FILES[1].data) - 100])  # cut off while the files come once more
    said = cluster.answer(request(eager=eager))
    assert (said[-1]["result"]["job_id"], script.read_bytes()) == (1, FILES[0].data)


def test_nothing_is_written_through_a_link(cluster: Cluster) -> None:
    (cluster.home / "hp-runs" / NAME).mkdir(parents=True)
    (cluster.home / "elsewhere").mkdir()
    (cluster.home / "hp-runs" / NAME / "data").symlink_to(cluster.home / "elsewhere")
    (said,) = cluster.answer(WHOLE)
    assert "is a link" in said["error"]["message"]
    assert list((cluster.home / "elsewhere").iterdir()) == []


def test_a_trial_leaves_nothing(cluster: Cluster) -> None:
    (said,) = cluster.answer(request(trial=True, options=["--dry-run"]))
    assert said["result"]["code"] == 0
    assert list((cluster.home / "hp-runs").iterdir()) == []


def test_what_the_system_does_not_let_us_do_is_told(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything was submitted, and when sbatch may have had it."""

    def closed(reception: Reception) -> None:
        raise PermissionError(13, "Permission denied", "/home/nlp1/hp-runs")

    with monkeypatch.context() as patch:
        patch.setattr(Reception, "missing", closed)
        (said,) = cluster.answer(WHOLE)
    assert said["error"]["message"] == "on the cluster: [Errno 13] Permission denied: '/home/nlp1/hp-runs'"
    assert said["error"]["remedy"].startswith("nothing was submitted")

    def gone(words: Sequence[str]) -> int:
        raise FileNotFoundError(2, "No such file or directory", "/gone")

    monkeypatch.setattr(cluster, "submit", gone)
    (said,) = cluster.answer(WHOLE)
    assert said["error"]["message"] == "on the cluster: [Errno 2] No such file or directory: '/gone'"
    assert (
        f"it may have been submitted; give the same line with --submission {NAME}" in said["error"]["remedy"]
    )


def test_what_cannot_be_understood_is_told(cluster: Cluster) -> None:
    (said,) = cluster.answer(b"nonsense\n")
    assert "cannot understand what came: a line that is no message" in said["error"]["message"]


def test_a_file_that_grew_while_it_was_sent_is_told(cluster: Cluster) -> None:
    sent = bytearray()
    wire = Wire(lambda _: b"", sent.extend)
    wire.put({"file": 0, "offset": 0}, FILES[0].data + b"more")
    start = WHOLE.index(b'{"file":0')
    (said,) = cluster.answer(WHOLE[:start] + bytes(sent))
    assert said["error"]["message"] == "job.sh grew while it was sent"
    assert f"--submission {NAME}" in said["error"]["remedy"]
    assert cluster.words == []


def test_a_job_whose_id_is_not_told_is_found(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """`#SBATCH --quiet`: sbatch says nothing."""

    def quietly(words: Sequence[str]) -> int:
        cluster.words.append(list(words))
        print(json.dumps({"elastic": False, "job_id": None, "cluster": ""}))
        return 0

    monkeypatch.setattr(cluster, "submit", quietly)
    (said,) = cluster.answer(WHOLE)
    assert (said["result"]["job_id"], said["result"]["state"]) == (1, "submitted")


def test_a_refusal_comes_in_hp_submits_own_words(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    def refuse(words: Sequence[str]) -> int:
        print("sbatch: error: invalid partition", file=sys.stderr)
        return 1

    monkeypatch.setattr(cluster, "submit", refuse)
    (said,) = cluster.answer(WHOLE)
    assert said["refused"] == {"code": 1, "stderr": "sbatch: error: invalid partition\n"}


@pytest.mark.parametrize("more", [{}, {"age": 5.0}, {"age": True}, {"age": "x"}, {"age": -1}, {"age": 1e30}])
def test_a_login_node_with_an_empty_home_of_its_own_makes_no_second_job(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    """The home that all share is not mounted there, but is called the same."""
    cluster.answer(WHOLE)
    (cluster.home / "hp-runs").rename(cluster.home / "elsewhere")
    (said,) = cluster.answer(request(again=True, **more))
    assert (said["result"]["job_id"], said["result"]["before"], len(cluster.words)) == (1, True, 1)


def test_a_node_on_which_no_folder_can_be_made_is_sick(cluster: Cluster) -> None:
    (cluster.home / "hp-runs").write_text("")
    (said,) = cluster.answer(WHOLE)
    assert said["error"]["sick"] is True
    with pytest.raises(SickNode, match=r"cannot make .* on the cluster: .*; free space") as error:
        _raise_what_it_says(said, "login1")
    assert error.value.node == "login1"


def test_where_the_job_writes_is_noted(cluster: Cluster) -> None:
    """Slurm forgets it, and nobody may have asked before."""
    cluster.answer(WHOLE)
    noted = cluster.home / "hp-runs" / NAME / ".hpctools/StdOut"
    assert noted.read_text() == ":/x/1.log"

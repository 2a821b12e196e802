"""Output of an array over a line that breaks: no byte twice, none missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from hpctools.errors import UsageError
from hpctools.remote import job_output, serving
from hpctools.remote.following import Wanted, follow
from hpctools.remote.job_output import Output, Outputs
from hpctools.remote.submissions import Record, Submission
from hpctools.remote.transport import LostConnection
from hpctools.remote.wire import Message
from hpctools.slurm import scripts
from hpctools.testing.runs import make_run

NAME = "train-0123456789ab"
REALLY = job_output.job_is_over


class Breaking:
    """A session with the cluster's side in it, that breaks once after so many messages."""

    tell: Callable[[str], None] = print

    def __init__(self, left: int) -> None:
        self.left = left

    def sleep(self, seconds: float) -> None: ...

    def forgive(self) -> None: ...

    def drop(self) -> None:
        self.left = 10**6

    def on_a_sound_node(self, attempt: Callable[[], Any]) -> Any:
        return attempt()

    @contextmanager
    def exchange(self, request: Mapping[str, Any]) -> Iterator[Breaking]:
        self.said: list[Message] = []
        wire: Any = self
        self.said.append(Message({"result": serving._logs(Message(request), wire, lambda _: 0)}))
        yield self

    def put(self, fields: Mapping[str, Any], data: bytes) -> None:
        self.said.append(Message(fields, data))

    def get(self) -> Message:
        if self.left == 0:
            raise LostConnection("the connection broke")
        self.left -= 1
        return self.said.pop(0)


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    paths = [tmp_path / f"slurm-7_{task}.{kind}" for kind in ("out", "err") for task in (0, 1, 2)]
    for path, text in zip(paths, ("zero 0", "one", "two two", "", "warning", ""), strict=True):
        path.write_text(text)
    record = Record(NAME, "r", state="submitted", job_id=7)
    monkeypatch.setattr(serving, "_found", lambda _: (Submission(tmp_path), record))
    monkeypatch.setattr(job_output, "job_is_over", lambda *_: True)
    return paths


def array(paths: Sequence[Path]) -> Outputs:
    return Outputs(tuple(Output(str(path), path.stem[-1]) for path in paths), array=True)


@pytest.mark.parametrize("left", range(5))
def test_it_goes_on_in_the_file_in_which_it_broke(
    outputs: list[Path], monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    monkeypatch.setattr(job_output, "outputs", lambda *_, errors: array(outputs[:3]))
    got: list[bytes] = []
    follow(cast("Any", Breaking(left)), Wanted(NAME), lambda path, data: got.append(data))
    assert b"|".join(got) == b"zero 0|one|two two"


def test_standard_error_that_is_waited_for_is_standard_error(
    outputs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An array's task whose file is not there when it is asked for."""
    asked: list[bool] = []

    def known(*_: object, errors: bool = False) -> Outputs:
        asked.append(errors)
        return array(outputs[3:] if errors and len(asked) > 1 else [])

    over = iter([False, True, True])
    monkeypatch.setattr(job_output, "outputs", known)
    monkeypatch.setattr(job_output, "job_is_over", lambda *_: next(over))
    monkeypatch.setattr(serving, "_still_there", lambda: None)
    monkeypatch.setattr(serving, "STATE_SECONDS", 0.0)
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr("hpctools.remote.overview.ends", lambda *_: ["COMPLETED"])
    got: list[bytes] = []
    wanted = Wanted(NAME, task=1, errors=True, follow=True)
    follow(cast("Any", Breaking(10**6)), wanted, lambda path, data: got.append(data))
    assert (got, set(asked)) == ([b"warning"], {True})


def test_an_array_of_which_one_task_has_begun_is_no_one_file(
    outputs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To follow that one until the whole array is over would hide the others."""
    for listed in ([], outputs[:1]):
        monkeypatch.setattr(job_output, "outputs", lambda *_, errors, listed=listed: array(listed))
        with pytest.raises(UsageError, match="several files; follow one of its tasks"):
            serving._logs(Message({"follow": True}), cast("Any", None), lambda _: 0)


def test_an_array_that_waits_is_asked_about_seldom(
    outputs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody may hang up at any second."""
    looks: list[float] = []
    seconds = [0.0]
    heard: list[float] = []

    def known(*_: object, errors: bool = False) -> Outputs:
        looks.append(seconds[0])
        return array(outputs[:1] if len(looks) == 3 else [])

    def sleep(time: float) -> None:
        seconds[0] += time

    monkeypatch.setattr(job_output, "outputs", known)
    monkeypatch.setattr(job_output, "job_is_over", lambda *_: len(looks) == 3)
    monkeypatch.setattr(serving, "_still_there", lambda: heard.append(seconds[0]))
    monkeypatch.setattr("hpctools.remote.overview.ends", lambda *_: ["COMPLETED"])
    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("time.monotonic", lambda: seconds[0])
    got: list[bytes] = []
    wanted = Wanted(NAME, task=0, follow=True)
    follow(cast("Any", Breaking(10**6)), wanted, lambda path, data: got.append(data))
    assert (got, looks, len(heard)) == ([b"zero 0"], [0.0, 5.0, 10.0], 10)


def test_an_offset_is_no_other_files(outputs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The file in which the line broke is not known any more."""
    monkeypatch.setattr(job_output, "outputs", lambda *_, errors: array(outputs[1:2]))
    sent: list[bytes] = []

    class Kept:
        def put(self, fields: Mapping[str, Any], data: bytes) -> None:
            sent.append(data)

    asked = Message({"path": str(outputs[0]), "offset": 2})
    serving._logs(asked, cast("Any", Kept()), lambda _: 0)
    assert sent == [b"one"]


@pytest.mark.parametrize("follows", [False, True])
def test_a_task_of_a_job_that_is_no_array_is_refused(
    outputs: list[Path], monkeypatch: pytest.MonkeyPatch, follows: bool
) -> None:
    """Else "there is no output yet", or nothing until the job is over."""
    plain = Outputs((Output(str(outputs[0])),), array=False)
    monkeypatch.setattr(job_output, "outputs", lambda *_, errors: plain)
    with pytest.raises(UsageError, match="job 7 is no array; leave out --task"):
        serving._logs(Message({"task": 3, "follow": follows}), cast("Any", None), lambda _: 0)


@pytest.fixture
def runs(outputs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An elastic array: a run for each index, each with a job of its own."""
    record = Record(NAME, "r", state="submitted", job_id=70, run=NAME)
    monkeypatch.setenv("HPCTOOLS_RUNS", str(tmp_path / "runs"))
    for index in range(3):
        folder = make_run(tmp_path / "runs", f"{NAME}_{index}")
        folder.append_job("baseline", 70 + index)
        folder.append_job("replica", 80 + index)
    submission = Submission(tmp_path / "submission")
    submission.make()
    monkeypatch.setattr(serving, "_found", lambda _: (submission, record))
    # Slurm knows them at first; later it has forgotten all.
    known = {70 + index: [{"StdOut": str(path)}] for index, path in enumerate(outputs[:3])}
    monkeypatch.setattr(scripts, "details", lambda job: known.pop(job, []))
    ended = {70: "COMPLETED", 71: "FAILED", 72: "COMPLETED"}
    monkeypatch.setattr(scripts, "states_of", lambda jobs: {job: [ended[job]] for job in jobs})


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("task", "follows", "text"),
    [(None, False, b"zero 0|one|two two"), (1, False, b"one"), (1, True, b"one"), (2, False, b"two two")],
)
def test_runs_of_an_elastic_array_are_told_apart(task: int | None, follows: bool, text: bytes) -> None:
    """The first one's output was all that there was, and --task was told nothing."""
    wanted = Wanted(NAME, task, follow=follows)
    for _ in range(2):
        got: dict[str, bytes] = {}
        result = follow(cast("Any", Breaking(10**6)), wanted, got.__setitem__)
        assert b"|".join(got.values()) == text
    assert result["job_states"] == (["FAILED"] if follows else [])


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("request_", "why"),
    [({"task": 7}, "has no task 7; its tasks: 0, 1, 2"), ({"follow": True}, "follow one of its tasks")],
)
def test_what_cannot_be_shown_of_an_elastic_array_is_refused(request_: Mapping[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        serving._logs(Message(request_), cast("Any", None), lambda _: 0)


@pytest.mark.parametrize("now", ["another, and longer", "short", "zero 0 and more"])
def test_output_that_was_begun_anew_while_the_line_was_broken_comes_from_its_beginning(
    outputs: list[Path], monkeypatch: pytest.MonkeyPatch, now: str
) -> None:
    """A job was requeued meanwhile: where it is longer than before, its beginning was missing."""
    plain = Outputs((Output(str(outputs[0])),), array=False)
    monkeypatch.setattr(job_output, "outputs", lambda *_, errors: plain)
    line = Breaking(1)
    really = line.drop

    def drop() -> None:
        outputs[0].write_text(now)
        really()

    monkeypatch.setattr(line, "drop", drop)
    got: list[bytes] = []
    follow(cast("Any", line), Wanted(NAME), lambda path, data: got.append(data))
    assert got == [b"zero 0", now.removeprefix("zero 0").encode()]


def test_a_task_that_is_followed_ends_with_itself(
    outputs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was followed until the whole array was over, and any other task's failure was its own."""
    asked: list[str] = []

    def squeue(argv: list[str]) -> str:
        asked.append(argv[-1])
        return "7_1 COMPLETED\n" if argv[-1] == "--jobs=7_1" else "7_1 COMPLETED\n7_0 FAILED\n7_2 RUNNING\n"

    monkeypatch.setattr(job_output, "outputs", lambda *_, errors: array(outputs[:3]))
    monkeypatch.setattr(job_output, "job_is_over", REALLY)
    monkeypatch.setattr(scripts, "_ask", squeue)
    got: list[bytes] = []
    wanted = Wanted(NAME, task=1, follow=True)
    result = follow(cast("Any", Breaking(10**6)), wanted, lambda path, data: got.append(data))
    assert (got, result["job_states"], set(asked)) == ([b"one"], ["COMPLETED"], {"--jobs=7_1"})

"""Output of an array over a line that breaks: no byte twice, none missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from hpctools.errors import UnreachableError
from hpctools.remote import job_output, serving
from hpctools.remote.following import Wanted, follow
from hpctools.remote.submissions import Record, Submission
from hpctools.remote.transport import LostConnection
from hpctools.remote.wire import Message
from hpctools.slurm import scripts

NAME = "train-0123456789ab"


class Breaking:
    """A session with the cluster's side in it, that breaks once after so many messages."""

    tell: Callable[[str], None] = print

    def __init__(self, left: int) -> None:
        self.left = left

    def sleep(self, seconds: float) -> None: ...

    def drop(self) -> None:
        self.left = 10**6

    def on_a_sound_node(self, attempt: Callable[[], Any]) -> Any:
        return attempt()

    @contextmanager
    def exchange(self, request: Mapping[str, Any]) -> Iterator[Breaking]:
        self.said: list[Message] = []
        wire: Any = self
        self.said.append(Message({"result": serving._logs(Message(request), wire)}))
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
    monkeypatch.setattr(job_output, "job_is_over", lambda _: True)
    return paths


@pytest.mark.parametrize("left", range(5))
def test_it_goes_on_in_the_file_in_which_it_broke(
    outputs: list[Path], monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    monkeypatch.setattr(job_output, "output_files", lambda *_, errors: outputs[:3])
    got: list[bytes] = []
    follow(cast("Any", Breaking(left)), Wanted(NAME), lambda path, data: got.append(data))
    assert b"|".join(got) == b"zero 0|one|two two"


def test_standard_error_that_is_waited_for_is_standard_error(
    outputs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An array's task whose file is not there when it is asked for."""
    asked: list[bool] = []

    def output_files(*_: object, errors: bool = False) -> list[Path]:
        asked.append(errors)
        return outputs[3:] if errors and len(asked) > 1 else []

    over = iter([False, True, True])
    monkeypatch.setattr(job_output, "output_files", output_files)
    monkeypatch.setattr(job_output, "job_is_over", lambda _: next(over))
    monkeypatch.setattr(serving, "_still_there", lambda: None)
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr("hpctools.remote.overview.states", lambda _: ["COMPLETED"])
    got: list[bytes] = []
    wanted = Wanted(NAME, task=1, errors=True, follow=True)
    follow(cast("Any", Breaking(10**6)), wanted, lambda path, data: got.append(data))
    assert (got, set(asked)) == ([b"warning"], {True})


def test_output_that_is_there_is_read_while_slurmctld_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From where it was when somebody looked last, else from where sbatch writes usually; else it is told."""

    def away(job: int) -> list[dict[str, str]]:
        raise UnreachableError("Slurm does not answer")

    submission, record = Submission(tmp_path), Record(NAME, "r", state="submitted", job_id=7)
    monkeypatch.setattr(scripts, "details", away)
    with pytest.raises(UnreachableError):
        job_output.output_files(submission, record)
    usual = tmp_path / "slurm-7.out"
    usual.write_text("epoch 1")
    assert job_output.output_files(submission, record) == [usual]
    submission.own.mkdir()
    monkeypatch.setattr(scripts, "details", lambda _: [{"StdOut": "/scratch/x.log"}])
    job_output.output_files(submission, record)
    monkeypatch.setattr(scripts, "details", away)
    assert job_output.output_files(submission, record) == [Path("/scratch/x.log")]

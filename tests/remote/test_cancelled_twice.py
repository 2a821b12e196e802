"""hp-cancel over a line that breaks: what is tried again is the same request, and the next one is another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from hpctools.cli import elsewhere, hp_cancel
from hpctools.elastic.folder import RunStatus
from hpctools.remote import serving
from hpctools.remote.transport import LostConnection
from hpctools.remote.wire import Message, Wire
from hpctools.submit import asking
from hpctools.testing.clock import FakeClock
from hpctools.testing.runs import make_run
from tests.submit.test_cancel_saving import Slurm


class Line:
    """A laptop's line to the cluster's side itself: the first answer on it is lost."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.breaks = True

    @contextlib.contextmanager
    def open(self, *_: object) -> Iterator[Line]:
        self.breaks = True
        yield self

    def again(self, attempt: Callable[[], Any]) -> Any:
        with contextlib.suppress(LostConnection):
            return attempt()
        return attempt()

    @contextlib.contextmanager
    def exchange(self, request: Mapping[str, Any]) -> Iterator[Line]:
        self.answer = serving._cancel(cast("Any", request), Wire(lambda _: b"", lambda _: None), self.main)
        yield self

    def main(self, words: Sequence[str]) -> int:
        self.asked.append(asking.request())
        return 0

    def result(self, hear: Callable[[object], None]) -> Mapping[str, Any]:
        if self.breaks:
            self.breaks = False
            raise LostConnection("the connection broke", "is the network there?")
        return self.answer


def test_of_an_older_laptop_which_states_no_request_nothing_is_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it tries again over a line that broke must not cost what the run saves."""
    monkeypatch.setenv("HPCTOOLS_SUBMISSIONS", str(tmp_path / "submissions"))
    monkeypatch.setenv("HPCTOOLS_RUNS", str(tmp_path))
    folder, slurm = make_run(tmp_path), Slurm()
    job = slurm.submit([f"--comment=hp-run:{folder.path.name}"], folder.path / "run.json")
    slurm.change(job, state="RUNNING", nodes=("n1",))
    folder.write_status(RunStatus("running"))
    wire = Wire(lambda _: b"", lambda _: None)

    def main(words: Sequence[str]) -> int:
        return hp_cancel.main(words, client=lambda: slurm, sleep=FakeClock().sleep)

    def ask(**stated: str) -> str:
        request = Message({"op": "cancel", "words": [folder.path.name], **stated})
        return str(serving._cancel(request, wire, main)["stderr"])

    for _ in range(2):
        assert "may be saving, and is waited for" in ask()
        folder.write_status(RunStatus("running"))
    assert not folder.was_asked_again()
    assert "cancelled again" in ask(request="b2")
    assert folder.was_asked_again()


def test_what_is_tried_again_is_the_same_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCTOOLS_SUBMISSIONS", str(tmp_path))
    line = Line()
    monkeypatch.setattr(elsewhere, "session", line.open)
    monkeypatch.setattr(elsewhere, "find_cluster", lambda name: name)
    for _ in range(2):
        assert elsewhere.elsewhere("hp-cancel", ["--cluster", "uni", "train-3fa9c1"]) == 0
    first, tried_again, second, _ = line.asked
    assert first == tried_again
    assert second not in ("", first)
    assert asking.STATED.get() == ""

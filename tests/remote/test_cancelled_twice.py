"""hp-cancel over a line that breaks: what is tried again is the same request, and the next one is another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from hpctools.cli import elsewhere
from hpctools.remote import serving
from hpctools.remote.transport import LostConnection
from hpctools.remote.wire import Wire
from hpctools.submit import asking


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

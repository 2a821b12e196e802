"""What hp-cancel says while it waits is read on a laptop while it waits, and not when it is over."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hpctools.cli import elsewhere
from hpctools.remote import serving, session
from hpctools.remote.clusters import Cluster
from hpctools.remote.serving import Programs
from hpctools.remote.session import Exchange
from hpctools.remote.wire import GREETING, VERSION, Message, Wire, WireClosed

WAITS = "hp-cancel: run train-3fa9c1: may be saving, and is waited for, 35 s at most"
ENDED = "run train-3fa9c1: cancelled baseline job 101\n"


class There:
    """The cluster's side, with an hp-cancel that says something and waits."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.while_it_waited: list[Message] = []
        self.ended = self.broken = False

    def answer(self, **more: Any) -> list[Message]:
        """All that is said to a laptop."""
        request = bytearray()
        asked = {"version": VERSION, "op": "cancel", "words": ["train-3fa9c1"], **more}
        Wire(lambda _: b"", request.extend).put(asked)
        wire = Wire(lambda _: bytes(request), self.send)
        with contextlib.suppress(WireClosed):
            serving._answer(wire, Programs(self.cancel, self.cancel, self.cancel))
        return self.heard()

    def send(self, data: bytes) -> None:
        if self.broken:
            raise WireClosed("the laptop is gone")
        self.sent += data

    def heard(self) -> list[Message]:
        """What has come to the laptop until now."""
        wire = Wire(lambda _: b"", lambda _: None)
        wire._buffer += self.sent
        return [wire.get() for _ in range(self.sent.count(b"\n"))]

    def cancel(self, words: Sequence[str]) -> int:
        print(WAITS, file=sys.stderr, flush=True)
        self.while_it_waited = self.heard()
        print("no whole line", end="", file=sys.stderr)
        print(ENDED, end="")
        self.ended = True
        return 0


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> There:
    monkeypatch.setenv("HPCTOOLS_SUBMISSIONS", str(tmp_path))
    return There()


def result(stderr: str) -> Message:
    return Message({"result": {"code": 0, "stdout": ENDED, "stderr": stderr}})


def test_a_laptop_is_told_at_once(there: There) -> None:
    said = there.answer(live=True)
    assert there.while_it_waited == [Message({"said": WAITS})]
    assert said == [Message({"said": WAITS}), result("no whole line")]


def test_an_older_one_which_would_pass_it_over_gets_it_with_the_result(there: There) -> None:
    assert there.answer() == [result(f"{WAITS}\nno whole line")]


def test_what_is_cancelled_is_cancelled_also_when_nobody_hears_it_any_more(there: There) -> None:
    there.broken = True
    assert there.answer(live=True) == []
    assert there.ended


class Channel:
    """Of a connection on which a line is said, and then, when `look` has looked, the result."""

    def __init__(self, look: Callable[[], None]) -> None:
        self.asked, answers = bytearray(), bytearray(GREETING)
        said = Wire(lambda _: b"", answers.extend)
        said.put({"said": f"{WAITS}\x1b[2J"})
        self.first, self.look = bytes(answers), look
        answers.clear()
        said.put(result("the last word").fields)
        self.last = bytes(answers)
        self.parts = self.answers()

    def answers(self) -> Iterator[bytes]:
        yield self.first
        self.look()
        yield self.last

    def recv(self, size: int) -> bytes:
        return next(self.parts, b"")

    def sendall(self, data: bytes) -> None:
        self.asked += data

    def open_session(self, timeout: float) -> Channel:
        return self

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None  # settimeout, close


def test_the_laptop_shows_it_while_it_waits(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []
    channel = Channel(lambda: shown.append(capfd.readouterr().err))

    class Session:
        @contextlib.contextmanager
        def exchange(self, request: Mapping[str, Any]) -> Iterator[Exchange]:
            connection = SimpleNamespace(settings=SimpleNamespace(alias="login1"), transport=channel)
            yield Exchange(cast("Any", connection), Cluster("uni", ("login1",)), request)

        def again(self, attempt: Callable[[], Any]) -> Any:
            return attempt()

    monkeypatch.setattr(session, "begin_command", lambda *_: None)
    monkeypatch.setattr(elsewhere, "session", lambda *_: contextlib.nullcontext(Session()))
    monkeypatch.setattr(elsewhere, "find_cluster", lambda name: name)
    assert elsewhere.elsewhere("hp-cancel", ["--cluster", "uni", "train-3fa9c1"]) == 0
    assert shown == [f"{WAITS}\\x1b[2J\n"]
    assert tuple(capfd.readouterr()) == (ENDED, "the last word\n")
    asked = Wire(lambda _: bytes(channel.asked), lambda _: None).get()
    assert asked["live"] is True

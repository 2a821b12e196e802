"""A worker that was given up and still trains: the others' exchange with it is all theirs, or nobody's.

As one whose agent is frozen: nobody ends it or calls it away, and its group is as it was. If it completed
a step that the others give up, it would be in the next one while they do the first again: two steps are done
twice because of one fault.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hpctools.elastic import run_session
from hpctools.elastic.exchange import Exchanged
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.group import Group, await_all
from hpctools.elastic.protocol import Message
from hpctools.elastic.run_session import RunSession

LIMIT = 30.0
LONG = 3600.0


class Line:
    """In the place of `Channel`: what a worker says is kept here, and what it is told comes from the test."""

    made: dict[str, Line] = {}  # noqa: RUF012

    def __init__(
        self,
        folder: RunFolder,
        hello: Callable[[], Mapping[str, Any]],
        on_message: Callable[[Message], None],
        on_welcome: Callable[[int], None],
        beat: Callable[[], Mapping[str, Any]],
    ) -> None:
        self.beat = beat
        self.said: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.hear = on_message
        Line.made[str(hello()["worker"])] = self

    def send(self, kind: str, **fields: Any) -> None:
        self.said.put({"kind": kind, **fields})

    def close(self) -> None: ...

    def await_(self, kind: str) -> Message:
        while (message := self.said.get(timeout=LIMIT))["kind"] != kind:
            pass
        return message


class State:
    """Of a training from streams, in its third epoch."""

    _completed, _steps = 12, 10

    def _capture(self) -> Mapping[str, Any]:
        return {}

    def _load(self, state: Mapping[str, Any]) -> None: ...


class Two:
    """Two workers in one generation; `gone` was given up, and is told nothing any more."""

    def __init__(self, folder: Path) -> None:
        names = ("stays", "gone")
        sessions = [RunSession(RunFolder(folder), name, State(), dict) for name in names]
        self.stays, self.gone = sessions
        self.lines = [Line.made[name] for name in names]
        self.pool = ThreadPoolExecutor(2)
        entered = [self.pool.submit(session.enter) for session in sessions]
        for rank, line in enumerate(self.lines):
            line.hear({"kind": "form", "generation": 1, "rank": rank, "world": 2, "recover": False})
        self.lines[1].hear({**self.lines[0].await_("store"), "kind": "link"})
        for line in self.lines:
            line.await_("linked")
        for line in self.lines:
            line.hear({"kind": "commit", "generation": 1, "agree": False})
        for each in entered:
            each.result(LIMIT)

    def call_away(self) -> None:
        self.lines[0].hear({"kind": "park", "generation": 2})

    def let_in(self) -> None:
        """Who stays is alone in the next generation."""
        line = self.lines[0]
        line.hear({"kind": "form", "generation": 2, "rank": 0, "world": 1, "recover": True})
        line.await_("linked")
        line.hear({"kind": "commit", "generation": 2, "agree": False})

    def close(self) -> None:
        """Called away for good, whatever somebody waits for."""
        for line in self.lines:
            line.hear({"kind": "park", "generation": 9})
            line.hear({"kind": "form", "generation": 9, "rank": 0, "world": 1, "recover": True})
            line.hear({"kind": "commit", "generation": 9, "agree": False})
        self.pool.shutdown(wait=True)


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    monkeypatch.setattr(run_session, "Channel", Line)
    monkeypatch.setattr(run_session, "Termination", lambda: SimpleNamespace(requested=False))
    monkeypatch.setattr(run_session, "die_with_parent", lambda parent: None)
    made = Two(tmp_path)
    yield made
    made.close()


def swap(group: Group) -> Exchanged:
    """What all ranks do: each sends, and receives from, the other one."""
    (other,) = group.others
    into = torch.empty(3)
    await_all([group.receive(into, other, 1), group.send(torch.ones(3), other, 1)])
    return Exchanged(into, 0)


def test_what_all_have_begun_is_ended_by_those_that_are_called_away(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_session, "EXCHANGE_SECONDS", LONG)
    begun, away = threading.Event(), threading.Event()

    def work(group: Group) -> Exchanged:
        begun.set()
        assert away.wait(LIMIT)
        return swap(group)

    ours = two.pool.submit(two.stays.exchange, work)
    theirs = two.pool.submit(two.gone.exchange, swap)
    assert begun.wait(LIMIT)
    two.call_away()
    away.set()
    assert theirs.result(LIMIT) is not None, "who was given up has completed the step"
    assert ours.result(LIMIT) is not None, "and so have we: it is not done again"


def test_what_does_not_end_is_given_up(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one may be frozen, or may have parked in the middle of its part."""
    monkeypatch.setattr(run_session, "EXCHANGE_SECONDS", 0.0)
    ours = two.pool.submit(two.stays.exchange, swap)
    two.call_away()
    two.lines[0].await_("parked")
    two.let_in()
    assert ours.result(LIMIT) is None


def test_who_parks_in_the_middle_of_its_part_lets_the_others_know(two: Two) -> None:
    """They would wait for it until they are called away, too; who was given up never is."""
    theirs = two.pool.submit(two.gone.exchange, swap)
    two.call_away()
    ours = two.pool.submit(two.stays.recover)
    assert two.lines[1].await_("failed")["generation"] == 1
    two.let_in()
    assert ours.result(LIMIT) is True
    assert not theirs.done(), "it waits for a coordinator"


def test_who_parks_is_told_from_others_by_rounds_and_all_else_counts_in_steps(two: Two) -> None:
    """With streams the end of an epoch is a round more: who knows of it is further than who does not."""
    assert two.lines[0].await_("switched")["step"] == 10
    two.call_away()
    parks = two.pool.submit(two.stays.recover)
    assert two.lines[0].await_("parked")["completed"] == 12
    two.let_in()
    assert parks.result(LIMIT)
    assert two.lines[0].await_("switched")["step"] == 10
    hello = two.stays._hello()
    assert (hello["completed"], hello["step"]) == (12, 10)


def test_each_coordinator_hears_whether_the_training_saves_by_itself(two: Two) -> None:
    """It was told to the one before, once, as the loader was made."""
    assert two.stays._hello()["saves"] is None
    two.stays.tell("saving", by_itself=False)
    two.stays.tell("saved", why="")
    assert two.stays._hello()["saves"] is False


@pytest.mark.parametrize("how", ["exchange", "collective"])
def test_who_waits_for_the_others_says_so(two: Two, how: str) -> None:
    """Also within a step of a sharded model: who stands still outside of it keeps all others waiting."""
    beat, deadline = two.lines[0].beat, time.monotonic() + LIMIT
    assert not beat()["waits"]
    ours = two.pool.submit(getattr(two.stays, how), swap)
    while not beat()["waits"]:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert getattr(two.gone, how)(swap) is not None
    assert ours.result(LIMIT) is not None
    assert not beat()["waits"]

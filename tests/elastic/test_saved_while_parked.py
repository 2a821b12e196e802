"""What a worker that has parked saves: its state, but not one that a roll back gives up."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_called_away import LIMIT, Line

from hpctools.elastic import run_session
from hpctools.elastic.checkpoint.keeper import Keeper, Order
from hpctools.elastic.checkpoint.saver import Origin
from hpctools.elastic.checkpoint.settings import Checkpoint
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.protocol import Message
from hpctools.elastic.run_session import RunSession

NOT_URGENT = {"kind": "save", "why": "fewer than the least", "urgent": False, "order": "1.1"}
SAVE = {"kind": "save", "why": "scancel", "urgent": True, "seconds": 5.0, "order": "1.1"}


class Trained:
    """A training after step 9, of which memory has no earlier state; saved is what it was after 4 steps."""

    def __init__(self) -> None:
        self._steps = 9
        self.session: RunSession | None = None
        self.saved: list[int] = []

    @property
    def _completed(self) -> int:
        return self._steps

    def _capture(self) -> Mapping[str, Any]:
        return {}

    def _load(self, state: Mapping[str, Any]) -> None: ...

    def _begin(self) -> None:
        if self.session is not None:
            self._steps = 4

    def _roll_back(self, to_step: int, skip: Sequence[int]) -> bool:
        return self._steps <= to_step

    def _save_as_ordered(self) -> None:
        if self.session is not None and self.session.take_order() is not None:
            self.saved.append(self._steps)

    def _has_put_off(self) -> bool:
        return False


class Writing(Trained):
    """One whose keeper writes a checkpoint for as long as the test wants, when an order comes.

    Attributes:
        go_on: lets it be written.
        asked: one for each time that its keeper was asked to save.
    """

    def __init__(self, place: Path) -> None:
        super().__init__()
        self.origin, self.grace, self.saves = Origin("run", 1, 1), None, True
        self.go_on, self.asked = threading.Event(), threading.Semaphore(0)
        settings = Checkpoint(every_seconds=0, every_steps=1)
        self.keeper = Keeper(settings, str(place), self, lambda: {"step": self._steps}, dict)
        self.store: Any = self.keeper._store
        self.begin, self.store.begin = self.store.begin, self._begin_late

    def _begin_late(self, step: int, label: str) -> Any:
        assert self.go_on.wait(LIMIT)
        return self.begin(step, label)

    def _save_as_ordered(self) -> None:
        if self.session is not None:
            self.keeper.boundary(self._steps)
            self.asked.release()

    def _has_put_off(self) -> bool:
        return self.keeper.has_put_off

    def fence(self, origin: Origin) -> None: ...

    def expected(self) -> None: ...

    def take_order(self) -> Order | None:
        message = self.session.take_order() if self.session is not None else None
        return message and Order(message["why"], message["urgent"], number=message["order"])

    def tell(self, kind: str, **fields: Any) -> None:
        assert self.session is not None
        self.session.tell(kind, **fields)


def form(generation: int, **more: Any) -> Message:
    return {"kind": "form", "generation": generation, "rank": 0, "world": 1, "recover": True, **more}


def parked_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: Trained | None = None
) -> tuple[Trained, Line, RunSession]:
    """A worker that has trained in generation 1."""
    state = Trained() if state is None else state
    monkeypatch.setattr(run_session, "Channel", Line)
    monkeypatch.setattr(run_session, "Termination", lambda: SimpleNamespace(requested=False))
    monkeypatch.setattr(run_session, "die_with_parent", lambda parent: None)
    session = RunSession(RunFolder(tmp_path), "first", state, dict)
    line = Line.made["first"]
    line.hear(form(1))
    line.await_("linked")
    line.hear({"kind": "commit", "generation": 1, "agree": False})
    session.enter()
    state.session = session
    return state, line, session


def test_what_is_about_to_be_given_up_is_not_saved_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the least size: the order to go back and that to save come at once."""
    state, line, session = parked_session(tmp_path, monkeypatch)
    line.hear({"kind": "park", "generation": 2})
    parked = threading.Thread(target=session.recover, daemon=True)
    parked.start()
    line.await_("parked")
    with session._changed:
        back = {"to_step": 8, "skip": []}
        line.hear({"kind": "park", "generation": 3, "roll_back": back})
        line.hear(SAVE)
    while line.await_("parked")["generation"] != 3:
        pass
    assert state.saved == []
    line.hear(form(4))
    line.await_("linked")
    line.hear({"kind": "commit", "generation": 4, "agree": False})
    parked.join(LIMIT)
    assert not parked.is_alive()


@pytest.mark.parametrize("back_to", [None, 8])
def test_what_a_roll_back_gives_up_is_not_saved_while_its_worker_is_parked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back_to: int | None
) -> None:
    """It would be the newest checkpoint, from which whoever resumes begins; the order waits for the state."""
    state, line, session = parked_session(tmp_path, monkeypatch)
    rolls = {} if back_to is None else {"roll_back": {"to_step": back_to, "skip": []}}
    line.hear(form(2, **rolls))
    line.await_("linked")
    parked = threading.Thread(target=session.recover, daemon=True)
    parked.start()
    while line.await_("parked")["generation"] != 2:
        pass
    line.hear(SAVE)
    deadline = time.monotonic() + (LIMIT if back_to is None else 0.1)
    while not state.saved and time.monotonic() < deadline:
        time.sleep(0.001)
    assert state.saved == ([9] if back_to is None else [])
    line.hear({"kind": "commit", "generation": 2, "agree": False})
    parked.join(LIMIT)
    state._save_as_ordered()  # as at the next step's end
    assert state.saved == ([9] if back_to is None else [4])


def writing_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Writing, Line, RunSession, threading.Thread]:
    """A worker that writes its checkpoint of step 8, and shall park after step 9."""
    state = Writing(tmp_path / "checkpoints")
    _, line, session = parked_session(tmp_path, monkeypatch, state)
    state._steps = 8
    state._save_as_ordered()
    state._steps = 9
    assert state.asked.acquire(timeout=LIMIT)
    return state, line, session, threading.Thread(target=session.recover, daemon=True)


def let_in(line: Line, parked: threading.Thread) -> None:
    line.hear(form(2))
    line.await_("linked")
    line.hear({"kind": "commit", "generation": 2, "agree": False})
    parked.join(LIMIT)
    assert not parked.is_alive()


@pytest.mark.parametrize("parks_first", [True, False])
def test_what_is_being_written_puts_an_order_off_and_does_not_lose_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parks_first: bool
) -> None:
    """Below the least size: who has to go stays until the state is saved."""
    state, line, session, parked = writing_session(tmp_path, monkeypatch)
    if not parks_first:
        line.hear(NOT_URGENT)
        state._save_as_ordered()
    line.hear({"kind": "park", "generation": 2})
    parked.start()
    line.await_("parked")
    if parks_first:
        line.hear(NOT_URGENT)
    assert state.asked.acquire(timeout=LIMIT)
    assert state.keeper.has_put_off
    state.go_on.set()
    saved = [line.await_("saved") for _ in range(2)]
    assert [(each["step"], each.get("order")) for each in saved] == [(8, None), (9, "1.1")]
    let_in(line, parked)
    state._save_as_ordered()
    assert session._orders.save is None
    said = [line.said.get_nowait()["kind"] for _ in range(line.said.qsize())]
    assert not {"saved", "unsaved", "save_failed"} & set(said), "it is answered once"


def test_who_waits_to_save_hears_the_coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage may hang for as long as it likes: the run goes on when there are enough again."""
    state, line, _, parked = writing_session(tmp_path, monkeypatch)
    line.hear({"kind": "park", "generation": 2})
    parked.start()
    line.await_("parked")
    line.hear(NOT_URGENT)
    for _ in range(2):
        assert state.asked.acquire(timeout=LIMIT)
    let_in(line, parked)
    state.go_on.set()
    assert line.await_("saved")["step"] == 8
    assert state.keeper._saver.wait(LIMIT)
    state._save_as_ordered()
    assert line.await_("saved")["order"] == "1.1"

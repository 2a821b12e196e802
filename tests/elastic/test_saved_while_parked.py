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
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.protocol import Message
from hpctools.elastic.run_session import RunSession

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


def form(generation: int, **more: Any) -> Message:
    return {"kind": "form", "generation": generation, "rank": 0, "world": 1, "recover": True, **more}


def parked_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Trained, Line, RunSession]:
    """A worker that has trained in generation 1."""
    monkeypatch.setattr(run_session, "Channel", Line)
    monkeypatch.setattr(run_session, "Termination", lambda: SimpleNamespace(requested=False))
    monkeypatch.setattr(run_session, "die_with_parent", lambda parent: None)
    state = Trained()
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

"""The agent's loop, with an agent that is put in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.errors import UnreachableError
from hpctools.login.agent import daemon
from hpctools.login.agent.daemon import serve
from hpctools.login.agent.listening import ask_door
from hpctools.login.agent.settings import Settings
from hpctools.login.care import Limits
from tests.login.agent.made_agent import FakeService, made_agent
from tests.login.agent.test_caring import FakeSlices


def test_an_agent_whose_first_look_fails_serves_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be started again and again, and nobody at the door would have an answer."""
    agent, stopping, answers = made_agent(tmp_path), list[int](), []
    door = tmp_path / "run" / "agent.sock"

    def look() -> None:
        if door.exists():
            answers.append(ask_door(door, {"ask": "status"})["node"])
            stopping.append(15)
            return
        agent.wake.set()
        raise TypeError("what nobody thought of")

    monkeypatch.setattr(agent, "look", look)
    monkeypatch.setattr(daemon, "make_agent", lambda *_: agent)
    monkeypatch.setattr(daemon, "_stop_at_signals", lambda _: stopping)
    serve(Settings(socket=str(door), check_address="127.0.0.1", check_port=0, metrics_port=0), None)
    assert answers == ["login-1"]


def test_a_shorter_heartbeat_of_the_service_is_kept_by_agents_with_older_settings(tmp_path: Path) -> None:
    """Their reports were further apart than their sessions counted: in between nobody had any."""
    heard = {"taken": True, "draining": False, "why": "", "end": []}
    service = FakeService(heard, {**heard, "lease_seconds": 12}, UnreachableError("gone"))
    agent, settings = made_agent(tmp_path, service=service), Settings(every=20.0)
    pauses = [daemon._pause(settings, agent)]  # an older service does not say
    for _ in range(2):
        agent.look()
        pauses.append(daemon._pause(settings, agent))
    assert pauses == [20.0, 4.0, 4.0]
    assert daemon._pause(Settings(every=2.0), agent) == 2.0


def test_whom_a_killed_agent_has_limited_is_free_where_care_is_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody read its note then: their limits stayed until the next boot."""
    slices, note = FakeSlices(), tmp_path / "limited.json"
    monkeypatch.setattr(daemon, "find_slices", lambda: slices)
    note.write_text("[54321, 54322]")
    with daemon._limits_lifted(Settings(state=str(tmp_path)), made_agent(tmp_path)):
        assert slices.told == [(54321, Limits()), (54322, Limits())]
    assert note.read_text() == "[]\n"
    slices.broken = True
    note.write_text("[54321]")
    with daemon._limits_lifted(Settings(state=str(tmp_path)), made_agent(tmp_path)):
        assert note.read_text() == "[54321]"  # for the next agent

"""The agent's loop, with an agent that is put in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.login.agent import daemon
from hpctools.login.agent.daemon import serve
from hpctools.login.agent.listening import ask_door
from hpctools.login.agent.settings import Settings
from tests.login.agent.made_agent import made_agent


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

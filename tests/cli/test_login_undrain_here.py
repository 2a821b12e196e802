"""A drain by the service and one on the node itself, taken back in this order or that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpctools.cli import login_drain
from hpctools.errors import UnreachableError
from hpctools.login.agent.agent import Agent
from hpctools.login.agent.door import Door
from tests.cli.test_login import NODE, call
from tests.login.agent.made_agent import FakeService, made_agent


class DrainingService(FakeService):
    """One that drains nodes; `tells`: also its own word with each report, as an older one does not."""

    def __init__(self, *, tells: bool = True) -> None:
        super().__init__()
        self.own, self.why, self.tells, self.away = False, "", tells, False
        self.here = False

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        if self.away:
            raise UnreachableError("the service does not answer", "see whether it runs")
        if path.endswith("/drain"):
            assert body is not None
            self.own, self.why = body["draining"], body["why"]
            return {"node": "login-1", "known": True}
        if path.endswith("/report"):
            assert body is not None
            self.here = body["draining"]
            told = {"taken": True, "draining": self.own or self.here, "why": self.why, "end": []}
            return told | ({"drained": self.own} if self.tells else {})
        return {"nodes": [{**NODE, "state": "draining" if self.own or self.here else "up"}]}


class Node:
    """The node login-1, and somebody who calls commands there."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, tells: bool = True) -> None:
        self.monkeypatch, self.service = monkeypatch, DrainingService(tells=tells)
        self.agent: Agent = made_agent(folder, service=self.service)
        door = Door(self.agent, None)
        monkeypatch.setattr(login_drain, "ask_agent", lambda path, question: door.answer(question, 0))

    def call(self, *words: str) -> str:
        """What a command prints; the agent looks after it, and reports."""
        told, code = call(self.monkeypatch, self.service, *words)
        assert code == 0, told
        self.agent.look()
        return told


@pytest.mark.parametrize("message", ["kernel", ""])
def test_what_both_said_is_over_when_both_took_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    """The service's word was taken to hold, and the door went by it while the service was away."""
    node = Node(tmp_path, monkeypatch)
    node.call("drain", "login-1", "--message", message)
    node.call("drain", "--here", "--message", "disk")
    assert "still drained: there is a word of its own" in node.call("undrain", "login-1")
    assert node.agent.status()["why"] == "disk"
    node.service.away = True
    assert node.call("undrain", "--here") == "login-1 is no longer drained here\n"
    assert [each.check()[:9] for each in (node.agent, made_agent(tmp_path))] == ["up ready "] * 2


def test_the_services_word_is_known_also_when_it_came_second_and_gave_no_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, monkeypatch)
    node.call("drain", "--here", "--message", "disk")
    node.call("drain", "login-1")
    assert node.call("undrain", "--here") == (
        "login-1 is no longer drained here but by the service's word it takes none\n"
    )
    assert node.call("undrain", "login-1") == "login-1 takes sessions again\n"
    assert not node.agent.status()["draining"]


def test_an_older_service_tells_both_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it said with a reason, and what the node hears back of its own word, are told apart as before."""
    node = Node(tmp_path, monkeypatch, tells=False)
    node.call("drain", "--here", "--message", "disk")
    assert node.call("undrain", "--here") == "login-1 is no longer drained here\n"
    node.call("drain", "login-1", "--message", "kernel")
    node.call("drain", "--here", "--message", "disk")
    assert "by the service's word" in node.call("undrain", "--here")
    node.call("undrain", "login-1")
    assert not node.agent.status()["draining"]

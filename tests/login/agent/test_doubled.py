"""The agent of a machine whose name another one has: nothing that it asks would count as its own."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from hpctools.errors import ConflictError
from hpctools.login.agent.door import Door
from tests.login.agent.made_agent import FakeService, made_agent

QUESTION = {"ask": "lease", "user": "nlp1", "claim": "4711-88"}
FINE = {"taken": True, "draining": False, "why": "", "end": []}


@pytest.mark.parametrize(("choice", "granted"), [("open", True), ("refuse", False)])
def test_it_asks_for_no_leases_under_the_others_name(
    tmp_path: Path, choice: Literal["open", "refuse"], granted: bool
) -> None:
    service = FakeService(ConflictError("another machine tells of login-1", "give it another name"), FINE)
    agent = made_agent(tmp_path, service=service)
    answer = Door(agent, service, choice).answer(QUESTION, 0)
    assert answer["granted"] is granted
    assert ("tell your administrators" in answer["message"]) is not granted
    assert [method for method, _, _ in service.asked] == ["PUT"]
    assert agent.status()["service_answers"] is False
    service.answers = [FINE, {"granted": True, "message": ""}]
    agent.look()
    assert Door(agent, service, choice).answer(QUESTION, 0)["granted"]
    assert [method for method, _, _ in service.asked] == ["PUT", "PUT", "POST"]

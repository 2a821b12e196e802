"""The agent of a machine whose name another one has: nothing that it asks would count as its own."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from hpctools.errors import ConflictError, UnreachableError
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


def test_the_log_says_so_also_when_the_service_was_away_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the one who is told to read it finds nothing but an outage; and each word stands there once."""
    away, doubled = UnreachableError("api does not answer"), ConflictError("another machine tells of login-1")
    service = FakeService(away, away, doubled, doubled, away, FINE, doubled)
    with caplog.at_level("WARNING", "hpctools.login"):
        agent = made_agent(tmp_path, service=service)
        for _ in range(6):
            agent.look()
    said = [record.message.rpartition(": ")[2] for record in caplog.records]
    assert said == [str(away), str(doubled), str(away), str(doubled)]

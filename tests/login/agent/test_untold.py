"""Each session of an administrator's comes to the service, which has them in its audit trail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpctools.errors import UnreachableError
from hpctools.login.agent.agent import Agent
from hpctools.login.agent.door import Door
from hpctools.login.agent.untold import MOST, TOGETHER, Untold
from tests.login.agent.made_agent import FakeSampler, FakeService, made_agent
from tests.login.node_processes import LISTENER, connection, process, sample

FINE = {"taken": True, "lease_seconds": 30, "draining": False, "why": "", "end": []}
AWAY = UnreachableError("gone")
ROOT = process(100, 10, 0, "sshd: root@notty", name="sshd")
SHORT = "99999999-88"
"""A session whose process is over."""


def comes(agent: Agent, service: FakeService | None, user: str = "hpcadmin", claim: str = SHORT) -> None:
    """PAM tells of somebody."""
    asked = {"ask": "lease", "user": user, "claim": claim, "origin": "192.0.2.7"}
    assert Door(agent, service, "refuse").answer(asked, 0)["granted"]


def told(service: FakeService) -> list[Any]:
    """What was told since the last time: sessions of reports, and of what it was told that it is over."""
    asked, service.asked[:] = list(service.asked), []
    return [
        path.rpartition("/")[2] if body is None else [each["claim"] for each in body["sessions"]]
        for _, path, body in asked
    ]


def test_a_session_between_two_looks_is_told_once_and_at_once_that_it_is_over(tmp_path: Path) -> None:
    """`ssh login-1 'cat /etc/shadow'` was in no trail."""
    service = FakeService(FINE)
    agent = made_agent(tmp_path, service=service)
    told(service)
    comes(agent, service)
    assert told(service) == [], "nobody who comes waits for the service"
    agent.look()
    (report, _) = service.asked
    assert report[2] is not None
    assert report[2]["sessions"] == [
        {"claim": SHORT, "user": "hpcadmin", "kind": "ssh", "origin": "192.0.2.7", "age": 0.0,
         "administrator": True},
    ]  # fmt: skip
    assert told(service) == [[SHORT], SHORT]
    agent.look()
    assert told(service) == [[]]


@pytest.mark.parametrize("lost", [AWAY, {**FINE, "taken": False}])
def test_what_began_and_ended_while_the_service_was_away_is_told_when_it_is_back(
    tmp_path: Path, lost: object
) -> None:
    """Seen by a look, told by PAM; of others, and of those that it knows already, nothing is told again."""
    seen = connection(200, "hpcadmin", 1000)
    service = FakeService(FINE)
    agent = made_agent(tmp_path, LISTENER, ROOT, service=service)
    assert told(service) == [["100-10000"]]
    shown = sample(LISTENER, ROOT, *seen, *connection(300, "nlp1", 1001))
    agent.sampler = FakeSampler(shown, sample(LISTENER))  # type: ignore[assignment]
    service.answers = [lost, lost, FINE]
    comes(agent, service)
    agent.look()
    agent.look()
    told(service)
    agent.look()
    over = [each.key for each in shown.sessions if each.user == "hpcadmin"]
    report, *closed = told(service)
    assert sorted(report) == sorted(closed) == sorted({SHORT, *over})
    assert "100-10000" not in report


def test_a_session_that_lasts_is_told_as_any(tmp_path: Path) -> None:
    service = FakeService(FINE)
    agent = made_agent(tmp_path, LISTENER, service=service)
    agent.sampler = FakeSampler(sample(LISTENER, ROOT))  # type: ignore[assignment]
    comes(agent, service, "root", "100-10000")
    told(service)
    agent.look()
    agent.look()
    assert told(service) == [["100-10000"]] * 2


def test_who_enters_while_a_report_is_put_together_is_not_told_as_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory may take its time for somebody else who begins."""
    service = FakeService(FINE)
    agent = made_agent(tmp_path, LISTENER, service=service)
    agent.sampler = FakeSampler(sample(LISTENER, ROOT))  # type: ignore[assignment]
    told(service)
    beginning = agent.claims.beginning

    def slow(seen: Any) -> Any:
        found = beginning(seen)
        comes(agent, service, "root", SHORT)
        monkeypatch.undo()
        return found

    monkeypatch.setattr(agent.claims, "beginning", slow)
    agent.look()
    assert told(service) == [["100-10000"]]
    agent.look()
    assert told(service) == [["100-10000", SHORT], SHORT], "it is over by then"


def test_without_a_service_nothing_is_kept(tmp_path: Path) -> None:
    agent = made_agent(tmp_path)
    comes(agent, None)
    assert agent.reporter.untold.claims == frozenset()
    assert agent.claims.gone() == []


def test_what_is_kept_and_told_together_has_a_limit() -> None:
    now = [10.0]
    untold = Untold(lambda: now[0])
    untold.note({"claim": f"{number}-1", "age": 4.0} for number in range(MOST + 1))
    now[0] = 25.0
    over = untold.over(untold.claims - {"1-1"})
    assert (len(over), over[0]) == (TOGETHER, {"claim": "2-1", "age": 19.0})
    untold.told([each["claim"] for each in over])
    assert untold.over(untold.claims)[0]["claim"] == "1-1"

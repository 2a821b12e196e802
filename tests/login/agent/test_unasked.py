"""Session Manager's sessions while the service is away: the node's own limit is kept for them, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.login.agent.agent import Agent
from hpctools.login.agent.from_site import agent_settings
from hpctools.login.agent.processes import Process
from hpctools.login.agent.sessions import open_sessions
from hpctools.login.agent.unasked import too_many
from hpctools.site import load
from hpctools.site.access import LoginAccess
from tests.login.agent.made_agent import FakeSampler, FakeService, made_agent
from tests.login.node_processes import BOOT, connection, process, sample

SITE = Path(__file__).parents[3] / "slurm-conf/examples/university/site.yaml"
AWAY = UnreachableError("the service does not answer", "see whether it runs")
REFUSED = HpctoolsError("the token does not hold", "make another one")
TAKEN = {"taken": True, "draining": False, "why": "", "end": [], "tell": {}}
DAEMON, BIN = 1, 2
"""Two accounts that every machine has."""


def managed(pid: int, uid: int = DAEMON) -> tuple[Process, ...]:
    """A session of Session Manager's, at pts/PID."""
    worker = process(pid, 20, 0, f"ssm-session-worker uni-{pid}a", name="ssm-session-wor")
    return worker, process(pid + 1, pid, uid, "sh", name="sh", terminal=f"pts/{pid}")


def key(pid: int) -> str:
    return f"uni-{pid}a"


def course(folder: Path, service: FakeService, *looks: tuple[Process, ...], limit: int | None = 2) -> Agent:
    """An agent that has looked so often."""
    agent = made_agent(folder, *looks[0], service=service)
    agent.sessions_per_user = limit
    agent.sampler = FakeSampler(*(sample(*each) for each in looks[1:]))  # type: ignore[assignment]
    for _ in looks[1:]:
        agent.look()
    return agent


@pytest.mark.parametrize("error", [AWAY, REFUSED])
def test_one_too_many_is_told_and_ended_at_the_next_look(tmp_path: Path, error: HpctoolsError) -> None:
    """The newest; those by ssh count, which PAM has let in."""
    there = connection(100, "daemon", DAEMON, "pts/1")
    now = (*there, *managed(200), *managed(300))
    agent = course(tmp_path, FakeService(error), there, now)
    ((terminals, words),) = agent.hands.told  # type: ignore[attr-defined]
    assert terminals == ("pts/300",)
    assert words.startswith("On login-1 one person may have 2 sessions, and you have others: this one")
    assert agent.hands.ended == []  # type: ignore[attr-defined]
    agent.look()
    assert agent.hands.ended == [key(300)]  # type: ignore[attr-defined]
    assert len(agent.hands.told) == 1  # type: ignore[attr-defined]


def test_it_is_ended_also_when_the_service_is_back_meanwhile(tmp_path: Path) -> None:
    full = (*managed(100), *managed(200))
    agent = course(tmp_path, FakeService(AWAY, AWAY, TAKEN), full, (*full, *managed(300)))
    agent.look()
    assert agent.hands.ended == [key(300)]  # type: ignore[attr-defined]


def test_who_was_there_before_stays(tmp_path: Path) -> None:
    """Also those whom an agent finds that has just begun, and those who came while the service answered."""
    many = tuple(each for pid in (100, 200, 300) for each in managed(pid))
    agent = course(tmp_path, FakeService(TAKEN, TAKEN, AWAY), many[:2], many, many, many)
    assert (agent.hands.told, agent.hands.ended) == ([], [])  # type: ignore[attr-defined]
    begun = course(tmp_path / "begun", FakeService(AWAY), many, many)
    assert (begun.hands.told, begun.hands.ended) == ([], [])  # type: ignore[attr-defined]


@pytest.mark.parametrize("why", ["the service answers", "limits are lifted", "no limit", "unsure"])
def test_nobody_is_ended_where(tmp_path: Path, why: str) -> None:
    service = FakeService(TAKEN if why == "the service answers" else AWAY)
    many = tuple(each for pid in (100, 200, 300) for each in managed(pid))
    agent = made_agent(tmp_path, service=service, lifted=why == "limits are lifted")
    agent.sessions_per_user = None if why == "no limit" else 2
    agent.unsure = lambda user: why == "unsure"
    agent.sampler = FakeSampler(sample(*many))  # type: ignore[assignment]
    agent.look()
    agent.look()
    assert (agent.hands.told, agent.hands.ended) == ([], [])  # type: ignore[attr-defined]


def test_each_person_has_a_limit_of_their_own_and_administrators_none() -> None:
    sessions = open_sessions(
        [each for pid in (100, 200) for each in managed(pid)]
        + [each for pid in (300, 400, 500) for each in managed(pid, BIN)],
        BOOT,
    )
    found = too_many((), sessions, 2, lambda user: False)
    assert [each.key for each in found] == [key(500)]
    assert too_many((), sessions, 2, lambda user: user == "bin") == ()


def test_an_account_of_several_people_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpctools.login.agent.sessions.user_name", lambda uid: "ssm-user")
    sessions = open_sessions([each for pid in (100, 200, 300) for each in managed(pid)], BOOT)
    assert too_many((), sessions, 1, lambda user: False) == ()


@pytest.mark.parametrize(("stated", "limit"), [(3, 3), (None, 4)])
def test_the_limit_is_the_one_that_pam_keeps(stated: int | None, limit: int) -> None:
    """A node's own, or else the fleet's (`hpctools.hyperpod.access`)."""
    site = load(SITE)
    access = site.access.model_copy(update={"login": LoginAccess(sessions_per_user=stated)})
    assert agent_settings(site.model_copy(update={"access": access})).sessions_per_user == limit

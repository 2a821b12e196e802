"""The agent's loop, with an agent that is put in its place."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hpctools.errors import UnreachableError
from hpctools.login.agent import daemon
from hpctools.login.agent.agent import Agent
from hpctools.login.agent.capped import started
from hpctools.login.agent.daemon import serve
from hpctools.login.agent.drained import DrainFile, Word
from hpctools.login.agent.listening import ask_door, door_server
from hpctools.login.agent.settings import Settings
from hpctools.login.care import Limits
from tests.login.agent.made_agent import FakeService, made_agent
from tests.login.agent.test_caring import FakeSlices


def test_an_agent_whose_first_look_fails_serves_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be started again and again, and nobody at the door would have an answer."""
    agent, stopping, answers = made_agent(tmp_path), list[int](), []
    door, looks = tmp_path / "run" / "agent.sock", iter(("first", "second"))

    def look() -> None:
        if next(looks) == "second":
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


def settings_of(folder: Path, **ports: int) -> Settings:
    free = {"check_port": 0, "metrics_port": 0}
    return Settings(
        socket=str(folder / "run/agent.sock"), state=str(folder), check_address="127.0.0.1", **free | ports
    )


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the service hears of an agent that is begun, whose looks all succeed."""
    heard: list[str] = []

    def made(settings: Settings, service: FakeService | None) -> Agent:
        agent = made_agent(Path(settings.state), service=FakeService(UnreachableError("not asked here")))

        def look() -> None:
            heard.append("a report")
            agent.wake.set()

        monkeypatch.setattr(agent, "look", look)
        return agent

    monkeypatch.setattr(daemon, "make_agent", made)
    monkeypatch.setattr(daemon, "_stop_at_signals", lambda _: [15])
    return heard


@pytest.mark.parametrize("port", ["check_port", "metrics_port"])
@pytest.mark.parametrize("service", [FakeService({}), None])
def test_an_agent_whose_port_another_has_tells_and_takes_nothing(
    tmp_path: Path, told: list[str], port: str, service: FakeService | None
) -> None:
    """Its report displaced the one that runs: each lease was refused by that one until the next heartbeat.

    With the figures' port taken it was started every two seconds: people were sent to a node without PAM's
    socket.
    """
    drains = DrainFile(tmp_path / "drain.json")
    drains.hear(service=Word(draining=True, why="new kernel"))
    before = (tmp_path / "drain.json").read_text()
    own = settings_of(tmp_path)
    running = started(door_server(Path(own.socket), lambda question, uid: {"node": "the one that runs"}))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(UnreachableError, match=rf"cannot listen on port {number} \({port}\)"):
            serve(settings_of(tmp_path, **{port: number}), service)
    assert told == []
    assert ask_door(Path(own.socket), {"ask": "status"}) == {"node": "the one that runs"}
    assert (tmp_path / "drain.json").read_text() == before
    running.shutdown()
    running.server_close()


@pytest.mark.parametrize("name", ["agent.sock", "people.sock"])
def test_an_agent_whose_socket_another_answers_on_leaves_it_that(
    tmp_path: Path, told: list[str], name: str
) -> None:
    """With ports of its own it took PAM's socket from the one that runs."""
    path = tmp_path / "run" / name
    running = started(door_server(path, lambda question, uid: {"node": "the one that runs"}))
    with pytest.raises(UnreachableError, match=rf"cannot listen on .*{name}: Address already in use"):
        serve(settings_of(tmp_path), FakeService({}))
    assert told == []
    assert ask_door(path, {"ask": "status"}) == {"node": "the one that runs"}
    running.shutdown()
    running.server_close()
    serve(settings_of(tmp_path), FakeService({}))  # what one has left behind is in nobody's way
    assert told == ["a report"]


def test_who_knocks_before_the_first_look_is_over_is_answered_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ports are there, and nobody is told anything of a node that was not looked at."""
    agent, stopping, answers = made_agent(tmp_path), list[int](), list[str]()
    own, looks = settings_of(tmp_path), iter(("first", "second"))
    with socket.socket(socket.AF_UNIX) as knocking:
        knocking.settimeout(20)

        def look() -> None:
            if next(looks) == "first":
                knocking.connect(own.socket)
                knocking.sendall(b'{"ask": "status"}\n')
                agent.wake.set()
            else:
                stopping.append(15)
                answers.append(knocking.makefile().readline())

        monkeypatch.setattr(agent, "look", look)
        monkeypatch.setattr(daemon, "make_agent", lambda *_: agent)
        monkeypatch.setattr(daemon, "_stop_at_signals", lambda _: stopping)
        serve(own, None)
    assert '"node": "login-1"' in answers[0]


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

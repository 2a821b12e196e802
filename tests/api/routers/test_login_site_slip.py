"""A slip in the site file: what login nodes, and those who log in, are answered meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import hpctools.site
from tests.api.routers.test_login import report, session

BROKEN = "nonsense: ["
SECONDS = 20


class Own:
    """A site file of the service's that may be damaged; a change is read at once by who asks next.

    Attributes:
        now: the file's clock.
        read: how often it was read.
        in_loop: whether any of that was done in an event loop.
        go: set; who reads waits for it.
    """

    def __init__(self, service: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.good = path, path.read_text()
        self.now, self.read, self.in_loop, self.go = 100.0, 0, False, threading.Event()
        self.go.set()
        self.file = service.app.state.context.site_file
        monkeypatch.setattr(self.file, "_path", path)
        monkeypatch.setattr(self.file, "_monotonic", lambda: self.now)
        monkeypatch.setattr(self.file, "_beside", lambda work: work())
        load = hpctools.site.load

        def counted(path: Path) -> Any:
            self.read += 1
            with suppress(RuntimeError):
                asyncio.get_running_loop()
                self.in_loop = True
            assert self.go.wait(SECONDS)
            return load(path)

        monkeypatch.setattr(hpctools.site, "load", counted)

    def limit(self, sessions: int) -> None:
        said = f"max_sessions_per_user: {sessions}"
        self.path.write_text(self.good.replace("max_sessions_per_user: 4", said))


@pytest.fixture
def own(sqlite_service: Any, site_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Own:
    path = tmp_path / "site.yaml"
    path.write_bytes(site_path.read_bytes())
    return Own(sqlite_service, path, monkeypatch)


@pytest.fixture
def agent(sqlite_service: Any) -> Any:
    """A login node's agent."""
    return sqlite_service.client("root", "login")


def test_a_slip_in_the_site_file_keeps_nobody_out_and_lifts_no_limit(
    sqlite_service: Any, agent: Any, own: Own, caplog: pytest.LogCaptureFixture
) -> None:
    """Each question was answered 500 until it was mended: with `refuse` nobody got onto any login node."""
    there = [session(f"{number}-1") for number in range(3)]

    def granted(claim: str) -> bool:
        body = {"node": "login-1", "claim": claim, "user": "nlp1"}
        return bool(agent.post("/v1/login/leases", json=body).json()["granted"])

    report(agent, 1, *there)
    own.path.write_text(BROKEN)
    assert [granted("1-9"), granted("2-9")] == [True, False]
    report(agent, 2, *there)
    assert len([each for each in caplog.messages if "logins go by what it said before" in each]) == 1
    assert sqlite_service.client("nlp").get("/v1/accounts").status_code == 500  # what is no login says so
    own.limit(5)
    report(agent, 3, *there)
    assert [granted("2-9"), granted("3-9")] == [True, False]


def _answers(service: Any, agent: Any) -> dict[str, int]:
    """What each route under /v1/login answers to who may ask it; nlp1 has some sessions on login-1."""
    admin, head = service.client(None), service.client("nlp", "write")
    own = service.client("nlp", user="nlp1")
    sessions = own.get("/v1/login/sessions")
    number = sessions.json().get("sessions", [{"id": 1}])[0]["id"]
    place = {"user": "nlp1"}
    answers = {
        "place": own.post("/v1/login/sessions", json=place),
        "place for them": head.post("/v1/login/sessions", json=place),
        "sessions": sessions,
        "their sessions": head.get("/v1/login/sessions"),
        "end": own.delete(f"/v1/login/sessions/{number}"),
        "nodes": admin.get("/v1/login/nodes"),
        "forget": admin.delete("/v1/login/nodes/login-9"),
        "drain": admin.put("/v1/login/nodes/login-9/drain", json={"draining": False}),
        "figures": admin.get("/metrics"),
        "lease": agent.post("/v1/login/leases", json={"node": "login-1", "claim": "9-9", "user": "cv1"}),
    }
    return {name: answer.status_code for name, answer in answers.items()}


ANSWERS = {
    "place": 201,
    "place for them": 201,
    "sessions": 200,
    "their sessions": 200,
    "end": 202,
    "nodes": 200,
    "forget": 404,
    "drain": 200,
    "figures": 200,
    "lease": 200,
}


def test_while_the_site_file_is_broken_logins_go_on_and_it_is_read_once_in_ten_seconds(
    sqlite_service: Any, agent: Any, own: Own
) -> None:
    """Each question for a place read it, in the event loop; lists, ends and drains were answered 500."""
    report(agent, 1, session())
    own.path.write_text(BROKEN)
    own.read = 0
    for seconds in (0, 9):
        own.now = 100.0 + seconds
        assert _answers(sqlite_service, agent) == ANSWERS
        assert own.read == 1
    own.now = 111.0
    assert _answers(sqlite_service, agent) == ANSWERS
    assert own.read == 2
    assert 'hpctools_api_login_nodes{state="up"} 1.0' in sqlite_service.client(None).get("/metrics").text


@pytest.mark.parametrize("damage", [lambda own: own.path.write_text(BROKEN), lambda own: own.limit(7)])
def test_nobody_who_logs_in_waits_while_the_site_file_is_read(
    sqlite_service: Any,
    agent: Any,
    own: Own,
    damage: Callable[[Own], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large one takes seconds: the loop stood still, leases missed the agents' two seconds."""
    readers: list[threading.Thread] = []

    def beside(work: Callable[[], None]) -> None:
        readers.append(threading.Thread(target=work, daemon=True))
        readers[-1].start()

    monkeypatch.setattr(own.file, "_beside", beside)
    report(agent, 1, session())
    own.go.clear()
    damage(own)
    assert _answers(sqlite_service, agent) == ANSWERS
    assert (len(readers), readers[0].is_alive()) == (1, True)
    own.go.set()
    readers[0].join(SECONDS)
    assert not readers[0].is_alive()


def test_a_site_file_that_never_could_be_used_is_said_to_each_and_read_in_no_loop(
    sqlite_service: Any, agent: Any, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.path.write_text(BROKEN)
    place = sqlite_service.client("nlp", user="nlp1")
    for _ in range(2):
        assert place.post("/v1/login/sessions", json={"user": "nlp1"}).status_code == 500
        assert agent.get("/v1/login/nodes").status_code == 500
        own.now += 11
    assert (own.read, own.in_loop) == (2, False)
    own.limit(4)
    report(agent, 1, session())
    assert place.post("/v1/login/sessions", json={"user": "nlp1"}).status_code == 201

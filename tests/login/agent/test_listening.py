"""The ways in: what HAProxy and programs of the node are answered over real sockets."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hpctools.errors import BudgetError, UnreachableError
from hpctools.login.agent.agent import Agent
from hpctools.login.agent.claims import lives
from hpctools.login.agent.door import Door
from hpctools.login.agent.listening import ask_door, serve_checks, serve_door
from hpctools.login.agent.processes import read_processes
from tests.login.agent.made_agent import FakeService, made_agent
from tests.login.node_processes import connection, process


def test_each_connection_gets_a_line(tmp_path: Path) -> None:
    server = serve_checks(("127.0.0.1", 0), lambda: "up ready 55%\n")
    try:
        for _ in range(3):
            with socket.create_connection(server.server_address[:2], timeout=5) as connection:  # type: ignore[arg-type]
                assert connection.makefile().read() == "up ready 55%\n"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Path]:
    """A door that answers who asks and what, and fails on `fail`."""

    def answer(question: Mapping[str, Any], uid: int) -> Mapping[str, Any]:
        if question["ask"] == "fail":
            raise RuntimeError("no")
        return {"uid": uid, "asked": dict(question)}

    path = tmp_path / "run/agent.sock"
    server = serve_door(path, answer)
    try:
        yield path
    finally:
        server.shutdown()
        server.server_close()


def test_who_asks_is_known_and_nonsense_is_answered(door: Path) -> None:
    question = {"ask": "status", "of": "line\nbreak"}
    assert ask_door(door, question) == {"uid": os.getuid(), "asked": question}
    assert ask_door(door, {"of": 1}) == {"error": "not understood: 'ask'"}
    assert ask_door(door, {"ask": "fail"}) == {"error": "the agent failed; its log says why"}
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(os.fspath(door))
        raw.sendall(b"[1]\n")
        assert json.loads(raw.makefile().read()) == {"error": "not understood: no object"}


def test_connections_that_say_nothing_hold_nobody_up(door: Path) -> None:
    """Everybody on the node may connect, and half-open lines stay for some seconds, beside the others."""
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(os.fspath(door))
        assert ask_door(door, {"ask": "status"}, seconds=60)["uid"] == os.getuid()


def lease(agent: Agent, service: FakeService | None, user: str = "nlp1", **words: Any) -> Mapping[str, Any]:
    """Ask for a lease as PAM does."""
    question = {"ask": "lease", "user": user, "claim": "4711-88", "origin": "192.0.2.7"}
    return Door(agent, service, words.pop("when_unreachable", "open")).answer(question, words.pop("uid", 0))


def test_a_lease_is_asked_of_the_service(tmp_path: Path) -> None:
    """With what of the user was here and is over: our own process stands for a session that lives."""
    (own,) = [each for each in read_processes() if each.pid == os.getpid()]
    here = process(own.pid, 10, 0, "sshd: nlp1 [priv]", started=own.started)
    child = process(2, own.pid, 1001, "sshd: nlp1@notty")
    agent = made_agent(tmp_path, here, child, *connection(99_999_999, "nlp1", 1001))
    service = FakeService({"granted": False, "message": "two are enough", "sessions": []})
    assert lease(agent, service) == {"granted": False, "message": "two are enough"}
    body = {"node": "login-1", "claim": "4711-88", "user": "nlp1", "kind": "ssh", "origin": "192.0.2.7"}
    (asked,) = service.asked
    over = [each.key for each in agent.sample.sessions if each.pid != own.pid] if agent.sample else []
    assert asked == ("POST", "/v1/login/leases", {**body, "gone": over})


def test_a_session_that_was_granted_a_moment_ago_is_told_until_it_is_over(tmp_path: Path) -> None:
    """No look has seen it yet; one that has come and gone between two looks is told as gone."""
    (own,) = [each for each in read_processes() if each.pid == os.getpid()]
    fine = {"taken": True, "draining": False, "why": "", "end": []}
    service = FakeService(
        fine, *[{"granted": granted, "message": ""} for granted in (True, True, False)], fine
    )
    agent = made_agent(tmp_path, service=service)
    door = Door(agent, service)
    for claim in (own.key, "4711-88", f"{os.getppid()}-1"):
        door.answer({"ask": "lease", "user": "nlp1", "claim": claim, "origin": "192.0.2.7"}, 0)
    agent.look()
    *_, (_, _, body) = service.asked
    assert body is not None
    assert [(each["claim"], each["user"], each["origin"]) for each in body["sessions"]] == [
        (own.key, "nlp1", "192.0.2.7")
    ]
    assert body["gone"] == ["4711-88", f"{os.getppid()}-1"]


def test_who_was_refused_and_still_lives_is_not_told(tmp_path: Path) -> None:
    (own,) = [each for each in read_processes() if each.pid == os.getpid()]
    fine = {"taken": True, "draining": False, "why": "", "end": []}
    service = FakeService(fine, {"granted": False, "message": "two"}, fine)
    agent = made_agent(tmp_path, service=service)
    Door(agent, service).answer({"ask": "lease", "user": "nlp1", "claim": own.key}, 0)
    agent.look()
    *_, (_, _, body) = service.asked
    assert body is not None
    assert (body["sessions"], body.get("gone")) == ([], None)


def test_many_at_once_are_all_answered(tmp_path: Path) -> None:
    """Two hundred people in eight threads; none is told that the agent failed."""
    (own,) = [each for each in read_processes() if each.pid == os.getpid()]
    door = Door(made_agent(tmp_path), FakeService({"granted": True, "message": "", "sessions": []}))

    def ask(number: int) -> bool:
        claim = own.key if number % 2 else f"99999999-{number}"
        question = {"ask": "lease", "user": f"u{number}", "claim": claim}
        return bool(door.answer(question, 0)["granted"])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(200)))


@pytest.mark.parametrize(("choice", "granted"), [("open", True), ("refuse", False)])
def test_without_the_service_the_site_decides(tmp_path: Path, choice: str, granted: bool) -> None:
    answer = lease(made_agent(tmp_path), FakeService(UnreachableError("gone")), when_unreachable=choice)
    assert answer["granted"] is granted
    assert ("does not answer" in answer["message"]) is not granted


@pytest.mark.parametrize(("choice", "granted"), [("open", True), ("refuse", False)])
def test_a_service_that_refuses_the_question_is_as_the_site_says(
    tmp_path: Path, choice: str, granted: bool
) -> None:
    agent = made_agent(tmp_path)
    answer = lease(agent, FakeService(BudgetError("token")), when_unreachable=choice)
    assert answer["granted"] is granted
    assert agent.wake.is_set(), "the next report looks for another token"
    assert ("tell your administrators" in answer["message"]) is not granted


def test_administrators_and_lifted_limits_are_not_asked_about(tmp_path: Path) -> None:
    service = FakeService(UnreachableError("gone"))
    assert lease(made_agent(tmp_path), service, "hpcadmin", when_unreachable="refuse")["granted"]
    lifted = made_agent(tmp_path, lifted=True)
    assert lease(lifted, service, when_unreachable="refuse")["granted"]
    assert service.asked == []


def test_only_root_may_change_anything(tmp_path: Path) -> None:
    agent = made_agent(tmp_path)
    refused = {"error": "only root may ask this"}
    assert lease(agent, None, uid=1001) == refused
    door = Door(agent, None)
    assert door.answer({"ask": "drain", "draining": True}, 1001) == refused
    assert door.answer({"ask": "status"}, 1001)["draining"] is False
    assert door.answer({"ask": "dance"}, 0) == {"error": "there is no question 'dance'"}
    assert door.answer({"ask": "drain", "draining": True, "why": "disk"}, 0)["why"] == "disk"


def test_whether_a_claim_lives() -> None:
    (own,) = [each for each in read_processes() if each.pid == os.getpid()]
    assert lives(own.key)
    assert not lives(f"{own.pid}-1")
    assert not lives("99999999-1")
    assert lives("uni-0a1b2c3d")

"""The ways in: what HAProxy and programs of the node are answered over real sockets."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpctools.errors import BudgetError, UnreachableError
from hpctools.login.agent import listening, metrics
from hpctools.login.agent.agent import Agent
from hpctools.login.agent.capped import Cap, started
from hpctools.login.agent.claims import lives
from hpctools.login.agent.door import Door
from hpctools.login.agent.figures import Figures
from hpctools.login.agent.listening import PEOPLE, ask_door, checks_server, door_server, people_server
from hpctools.login.agent.metrics import metrics_server
from hpctools.login.agent.processes import read_processes
from tests.login.agent.made_agent import FakeService, made_agent
from tests.login.node_processes import connection, process


def test_each_connection_gets_a_line(tmp_path: Path) -> None:
    server = started(checks_server(("127.0.0.1", 0), lambda: "up ready 55%\n"))
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
    server = started(door_server(path, answer))
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


def test_a_node_with_thousands_of_sessions_answers_whole(tmp_path: Path) -> None:
    """From some hundred on `login here` and `login drain --here` said that no agent answers."""
    told = {"sessions": [{"claim": f"{number}-1", "user": "nlp1"} for number in range(3000)]}
    server = started(door_server(tmp_path / "agent.sock", lambda question, uid: told))
    try:
        assert ask_door(tmp_path / "agent.sock", {"ask": "status"}, seconds=60) == told
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    "line", [b"[" * 60_000, b'{"ask": ' + b"[" * 900 + b"]" * 900 + b"}", b"\xff", b"1" * 5000]
)
def test_nobody_fills_the_log_with_what_cannot_be_read(
    tmp_path: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    agent = made_agent(tmp_path)
    server = started(people_server(tmp_path / "people.sock", Door(agent, None).answer))
    try:
        with socket.socket(socket.AF_UNIX) as raw:
            raw.settimeout(20)
            raw.connect(os.fspath(tmp_path / "people.sock"))
            raw.sendall(line + b"\n")
            assert "error" in json.loads(raw.makefile().read())
    finally:
        server.shutdown()
        server.server_close()
    assert caplog.records == []


def test_roots_connections_that_say_nothing_hold_nobody_up(door: Path) -> None:
    """Half-open lines stay for some seconds, beside the others."""
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(os.fspath(door))
        assert ask_door(door, {"ask": "status"}, seconds=60)["uid"] == os.getuid()


HOLDER = """\
import socket, sys
held = []
for _ in range(600):
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].connect(sys.argv[1])
    held[-1].settimeout(20)
    try:
        held[-1].sendall(b" ")
    except OSError:
        pass
print("held", flush=True)
sys.stdin.read()
"""
ASKER = """\
import socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.settimeout(20)
    asked.connect(sys.argv[1])
    asked.sendall(b'{"ask": "status"}\\n')
    print(asked.makefile().read())
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every account may enter."""
    folder = Path(tempfile.mkdtemp(prefix="agent-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def as_user(uid: int, program: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """A Python program of an account."""
    argv = ["/usr/bin/python3", "-c", program, os.fspath(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, user=uid) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.skipif(os.getuid() != 0, reason="only root has other accounts' programs")
def test_who_holds_hundreds_of_connections_is_in_nobodys_way(open_folder: Path) -> None:
    """Dribbling ones, of one person; PAM, that person's neighbours and root are answered all the same."""

    def answer(question: Mapping[str, Any], uid: int) -> Mapping[str, Any]:
        return {"uid": uid, "threads": threading.active_count()}

    root, people = open_folder / "agent.sock", open_folder / "people.sock"
    servers = [started(door_server(root, answer)), started(people_server(people, answer))]
    before = threading.active_count()
    try:
        assert (stat.S_IMODE(root.stat().st_mode), stat.S_IMODE(people.stat().st_mode)) == (0o600, 0o666)
        with as_user(1001, HOLDER, people) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            asked = ask_door(root, {"ask": "lease"}, seconds=10)
            assert asked["uid"] == 0
            assert asked["threads"] <= before + 1 + PEOPLE.most_of_one  # type: ignore[operator]
            with as_user(1002, ASKER, people) as neighbour:
                told, failed = neighbour.communicate(timeout=30)
            assert json.loads(told)["uid"] == 1002, failed
            assert ask_door(people, {"ask": "status"}, seconds=10)["uid"] == 0
            with as_user(1001, ASKER, root) as other:
                assert "PermissionError" in other.communicate(timeout=30)[1]
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def test_a_connection_has_its_time_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it says a byte: the whole of it is timed."""
    monkeypatch.setattr(listening._DoorServer, "cap", Cap(seconds=0.5))
    server = started(door_server(tmp_path / "agent.sock", lambda question, uid: {"uid": uid}))
    try:
        with socket.socket(socket.AF_UNIX) as dribbling:
            dribbling.settimeout(20)
            dribbling.connect(os.fspath(tmp_path / "agent.sock"))
            begin, ended = time.monotonic(), False
            while not ended and time.monotonic() < begin + 20:
                try:
                    dribbling.sendall(b" ")
                    time.sleep(0.05)
                except OSError:
                    ended = True
            assert ended
    finally:
        server.shutdown()
        server.server_close()


def over(connections: Sequence[socket.socket]) -> None:
    """Say that no more comes on any of them, and wait until the server hangs up: then none has a place."""
    for each in connections:
        each.shutdown(socket.SHUT_WR)
    assert {each.recv(1) for each in connections} == {b""}


def test_prometheus_is_answered_and_its_port_has_few_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None has had its time before all are counted, however slow the machine is.
    monkeypatch.setattr(metrics._Server, "cap", replace(metrics._Server.cap, seconds=60.0))
    port = started(metrics_server("127.0.0.1", 0, Figures(made_agent(tmp_path)))).server_port
    before = threading.active_count()
    with ExitStack() as stack:
        ours = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)) for _ in range(40)
        ]
        assert threading.active_count() <= before + 16
        over(ours)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        assert "hpctools_login_draining 0.0" in answer.read().decode()


def test_who_connects_in_a_burst_need_not_knock_twice(tmp_path: Path) -> None:
    """The kernel keeps them until it is their turn; beyond its queue each tries again after seconds."""
    with metrics_server("127.0.0.1", 0, Figures(made_agent(tmp_path))) as server, ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=5))


def test_an_agent_begins_while_name_servers_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of 0.0.0.0 was asked for, for as long as the resolver waits: the node fell silent."""
    monkeypatch.setattr("socket.getfqdn", lambda name="": pytest.fail(f"{name!r} was asked for"))
    assert started(metrics_server("127.0.0.1", 0, Figures(made_agent(tmp_path)))).server_port


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


def test_a_drained_node_takes_nobody_who_has_nothing_there(tmp_path: Path) -> None:
    """Drained on the node itself, without a service: who has a session or a tmux there comes back to it."""
    tmux = process(400, 1, 1, "tmux new", name="tmux: server")
    agent = made_agent(tmp_path, *connection(100, "nlp1", 1001), tmux)
    assert lease(agent, None, "nlp2")["granted"]
    agent.drain(draining=True, why="the disk fails")
    assert lease(agent, None, "nlp2") == {
        "granted": False,
        "message": "login-1 takes no new sessions: the disk fails. Please log in on another login node: "
        "hp-login finds one (hp-login --not login-1 where it comes back to this one).",
    }
    assert [lease(agent, None, user)["granted"] for user in ("nlp1", "daemon", "hpcadmin", "root")] == [
        True
    ] * 4
    agent.drain_notice = 60.0
    assert lease(agent, None, "nlp2")["granted"], "a balancer may not have noticed yet"
    agent.drain(draining=False, why="")
    assert lease(agent, None, "nlp2")["granted"]


def test_the_services_word_counts_at_the_door_and_nobody_is_asked(tmp_path: Path) -> None:
    drain = {"taken": True, "draining": True, "why": "new kernel", "end": []}
    service = FakeService(drain, UnreachableError("gone"))
    agent = made_agent(tmp_path, service=service)
    assert "new kernel" in lease(agent, service)["message"]
    assert len(service.asked) == 1, "no lease was asked for"
    lifted = made_agent(tmp_path, service=FakeService(drain), lifted=True)
    assert lease(lifted, service)["granted"]


def test_who_has_just_been_let_in_is_not_refused_their_next_session(tmp_path: Path) -> None:
    """No look has seen the first one yet."""
    (own,) = [each for each in read_processes() if each.pid == os.getpid()]
    service = FakeService({"granted": True, "message": ""})
    agent = made_agent(tmp_path)
    Door(agent, service).answer({"ask": "lease", "user": "nlp1", "claim": own.key}, 0)
    agent.drain(draining=True, why="")
    assert lease(agent, service)["granted"]


def test_where_others_came_from_is_for_root(tmp_path: Path) -> None:
    agent = made_agent(tmp_path, *connection(100, "nlp1", 1001), *connection(200, "nlp2", 1002))
    assert agent.sample is not None
    from_somewhere = tuple(replace(each, source="192.0.2.7") for each in agent.sample.sessions)
    agent.sample = replace(agent.sample, sessions=from_somewhere)
    door = Door(agent, None)

    def origins(uid: int) -> dict[str, str]:
        return {each["user"]: each["origin"] for each in door.answer({"ask": "status"}, uid)["sessions"]}

    assert origins(0) == {"nlp1": "192.0.2.7", "nlp2": "192.0.2.7"}
    assert origins(1001) == {"nlp1": "192.0.2.7", "nlp2": ""}
    assert origins(1003) == {"nlp1": "", "nlp2": ""}


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

"""hp-login: where it goes, and the ssh that it becomes."""

from __future__ import annotations

import socket
from threading import Thread

import pytest

from hpctools.cli.hp_login import Way, answers_as_sshd, find_way, main, ssh_command
from hpctools.errors import BudgetError, HpctoolsError, UnreachableError
from tests.login.agent.made_agent import FakeService

FIRST = {"node": "login-1", "address": "login-1.uni.example", "why": "your tmux is on login-1.", "others": []}
SECOND = {**FIRST, "node": "login-2", "address": "login-2.uni.example", "why": "it has room."}


def all_answer(host: str, port: int) -> bool:
    return port == 22


def test_it_goes_where_the_service_says() -> None:
    service = FakeService(FIRST)
    way = find_way("nlp1", service, ("login-9",), all_answer)
    assert way == Way("login-1", "login-1.uni.example", "your tmux is on login-1.")
    assert service.asked == [("POST", "/v1/login/sessions", {"user": "nlp1", "avoid": []})]


def test_a_node_that_does_not_answer_is_avoided() -> None:
    service = FakeService(FIRST, SECOND)
    way = find_way("nlp1", service, (), lambda host, port: host.startswith("login-2"))
    assert way.node == "login-2"
    assert service.asked[1][2] == {"user": "nlp1", "avoid": ["login-1"]}


def test_it_ends_when_no_node_answers() -> None:
    with pytest.raises(UnreachableError, match="none of login-1 answers"):
        find_way("nlp1", FakeService(FIRST), (), lambda host, port: False)


def test_without_the_service_the_list_is_tried() -> None:
    away = FakeService(UnreachableError("api does not answer"))
    way = find_way("nlp1", away, ("login-1", "login-2"), lambda host, port: host == "login-2")
    assert way == Way("login-2", "login-2", "the first of the list that answers (api does not answer).")
    assert find_way("nlp1", None, ("login-1",), all_answer).why.endswith("(no service is asked).")
    with pytest.raises(UnreachableError, match="no login node answers"):
        find_way("nlp1", None, (), all_answer)


def test_who_may_have_no_more_sessions_is_told_so() -> None:
    with pytest.raises(BudgetError, match="you have 4 sessions"):
        find_way("nlp1", FakeService(BudgetError("nlp1: you have 4 sessions")), ("login-1",), all_answer)


def test_the_ssh_that_it_becomes() -> None:
    assert ssh_command("", "login-1", []) == ["ssh", "login-1"]
    tunnel = ["-N", "-L", "8888:localhost:8888"]
    assert ssh_command("nlp1", "login-1", tunnel) == ["ssh", "-l", "nlp1", *tunnel, "login-1"]
    assert ssh_command("", "login-1", ["squeue", "--me"]) == ["ssh", "login-1", "--", "squeue", "--me"]
    with pytest.raises(HpctoolsError, match="no host"):
        ssh_command("", "-oProxyCommand=x", [])


@pytest.mark.parametrize(("first", "answers"), [(b"SSH-2.0-OpenSSH_9.2\r\n", True), (b"", False)])
def test_whether_an_sshd_answers(first: bytes, answers: bool) -> None:
    """One that is full takes the connection and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.sendall(first)

        server.settimeout(20)
        thread = Thread(target=serve)
        thread.start()
        assert answers_as_sshd("127.0.0.1", port) == answers
        thread.join()
    assert not answers_as_sshd("127.0.0.1", port)
    assert answers_as_sshd("only.ssh-config-knows-this.invalid", 22)


def test_without_a_service_sessions_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HPCTOOLS_API", raising=False)
    monkeypatch.setenv("HPCTOOLS_CLUSTERS", "/nonexistent")
    assert main(["--sessions"]) == 2
    assert "no service is named" in capsys.readouterr().err

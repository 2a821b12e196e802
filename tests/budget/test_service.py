"""What answers in the service's place is not the service: it counts as away, for everybody who asks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hpctools.budget.service import Service
from hpctools.cli import budget_enforce, hp_login
from hpctools.cli.hp_login import find_way
from hpctools.cli.main import hpctools as cli
from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.login.agent.door import Door
from hpctools.login.session_manager.enforcement import Enforcement
from hpctools.remote.clusters import Cluster
from hpctools.remote.placement import login_nodes
from tests.login.agent.made_agent import made_agent
from tests.login.node_processes import LISTENER, connection

PAGE = "<html><body>We are back at noon.</body></html>"
SIGN_IN = {"Location": "https://sso.uni.example/login"}
Said = tuple[int, dict[str, str], str]
STRANGERS: tuple[Said, ...] = (
    (302, SIGN_IN, PAGE),
    (308, {}, ""),
    (200, {}, PAGE),
    (200, {}, ""),
    (200, {}, "[" * 50_000),
    (200, {}, "{}"),
    (200, {}, '{"status": "ok"}'),
    (200, {}, "[]"),
    (200, {}, "null"),
    (200, {}, '"ok"'),
)


@contextmanager
def answering(said: Said) -> Iterator[Service]:
    status, headers, body = said

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield Service("http", f"127.0.0.1:{server.server_address[1]}", "", "token", 10.0)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=STRANGERS, ids=lambda said: f"{said[0]}-{said[2][:6]}")
def stranger(request: pytest.FixtureRequest) -> Iterator[Service]:
    with answering(request.param) as made:
        yield made


@pytest.fixture(params=[(204, {}, ""), (202, {}, "{}"), (200, {}, "[]")])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    with answering(request.param) as made:
        yield made


def test_what_the_service_answers_is_taken_also_when_it_is_empty(service: Service) -> None:
    assert not service.ask("DELETE", "/v1/tokens/1")


def test_it_is_said_what_answers_instead() -> None:
    with answering(STRANGERS[0]) as stranger, pytest.raises(UnreachableError) as told:
        stranger.ask("GET", "/v1/accounts")
    assert "answers 302 and sends on to https://sso.uni.example/login: it is not" in str(told.value)


def test_an_agent_goes_on_without_it(stranger: Service, tmp_path: Path) -> None:
    agent = made_agent(tmp_path, LISTENER, *connection(100, "nlp1", 1000), service=stranger)  # type: ignore[arg-type]
    assert (agent.reporter.failures, agent.status()["service_answers"]) == (1, False)
    question = {"ask": "lease", "user": "nlp1", "claim": "1-1"}
    assert Door(agent, stranger).answer(question, 0) == {"granted": True, "message": ""}
    refused = Door(agent, stranger, "refuse").answer(question, 0)
    assert not refused["granted"]
    assert "does not answer" in refused["message"]


def test_a_person_goes_to_a_node_of_their_list(stranger: Service) -> None:
    way = find_way("nlp1", stranger, ("login-1",), lambda node: True)
    assert way.node == "login-1"
    assert "is not the service that answers" in way.why


def test_hp_submit_goes_by_the_persons_own_order(stranger: Service, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token")
    token.chmod(0o600)
    cluster = Cluster("uni", ("login-1", "login-2"), api=f"http://{stranger.host}")
    told: list[str] = []
    environment = {"HPCTOOLS_API_TOKEN_FILE": str(token), "HOME": str(tmp_path)}
    assert login_nodes(cluster, lambda: "nlp1", environment, told.append) == ("login-1", "login-2")
    (line,) = told
    assert line.startswith(f"the site's API ({stranger.host}) gives no answer that makes sense (status ")
    assert line.endswith("; login nodes are tried in your own order")


class Sessions:
    """AWS's ssm with one session."""

    def pages(self, operation: str, **_: Any) -> Iterator[dict[str, Any]]:
        yield {"Sessions": [{"SessionId": "anna-1", "Target": "i-0aaa111", "Owner": "anna"}]}

    def ask(self, operation: str, **_: Any) -> dict[str, Any]:
        raise AssertionError(f"nothing else is asked: {operation}")


def test_a_sweep_leaves_sessions_open(stranger: Service) -> None:
    made = Enforcement(Sessions(), stranger, lambda arn: "nlp1", lambda target: "login-1")
    with pytest.raises(HpctoolsError, match="is not the service that answers") as told:
        made.sweep()
    assert "others were looked at" in str(told.value)


ASKING = (
    ("login", "nodes"),
    ("login", "sessions"),
    ("login", "end", "812"),
    ("login", "drain", "login-1", "--wait"),
    ("login", "drain", "login-1"),
    ("login", "undrain", "login-1"),
    ("login", "forget", "login-1"),
    ("login", "nlb", "--target-group", "arn:aws:elasticloadbalancing:eu-west-1:1:targetgroup/a/b"),
    ("budget", "status"),
    ("budget", "status", "nlp"),
    ("budget", "show", "nlp"),
    ("budget", "alerts"),
    ("budget", "forecast", "nlp"),
    ("budget", "jobs", "nlp"),
    ("budget", "runs", "nlp"),
    ("budget", "job", "4711"),
    ("budget", "enforce", "plan"),
    ("budget", "enforce", "apply"),
    ("budget", "set", "nlp", "--amount", "100", "--why", "x"),
)


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_every_command_says_what_answers_instead(
    stranger: Service, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not which word of it is missing: nobody who reads a traceback can do anything about it."""
    token = tmp_path / "token"
    token.write_text("a-token")
    token.chmod(0o600)
    monkeypatch.setenv("HPCTOOLS_API", f"http://{stranger.host}")
    monkeypatch.setenv("HPCTOOLS_API_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    with pytest.raises(UnreachableError, match="it is not the service that answers") as told:
        cli.main(list(words), standalone_mode=False)
    assert told.value.remedy


def test_what_is_no_list_of_steps_undid_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering((200, {}, "{}")) as foreign:
        monkeypatch.setattr(budget_enforce, "find_service", lambda environment: foreign)
        with pytest.raises(UnreachableError, match="it is not the service that answers"):
            cli.main(["budget", "enforce", "undo", "nlp"], standalone_mode=False)


@pytest.mark.parametrize("words", [("--sessions",), ("--end", "812")])
def test_so_does_hp_login(
    stranger: Service,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(hp_login, "_service", lambda api: stranger)
    monkeypatch.setenv("HPCTOOLS_CLUSTERS", "/nonexistent")
    assert hp_login.main(list(words)) == 3
    assert "it is not the service that answers" in capsys.readouterr().err


@pytest.mark.parametrize("status", [409, 403, 502])
def test_what_refuses_gives_a_terminal_no_commands(status: int) -> None:
    """A list of sessions has lines, and keeps them."""
    detail = json.dumps({"detail": "nlp1: you have\x1b[2J 4 sessions:\n  812: login-2\x9b5m"})
    with answering((status, {}, detail)) as service, pytest.raises(HpctoolsError) as told:
        service.ask("POST", "/v1/login/sessions", {})
    assert told.value.message.endswith(": nlp1: you have [2J 4 sessions:\n  812: login-2 5m")

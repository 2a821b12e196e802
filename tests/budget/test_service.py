"""What answers in the service's place is not the service: it counts as away, for everybody who asks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hpctools.budget.service import Service
from hpctools.cli.hp_login import find_way
from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.login.agent.door import Door
from hpctools.login.session_manager.enforcement import Enforcement
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

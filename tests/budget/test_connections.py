"""Connections to the service that are kept for the next question."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hpctools.budget import connections
from hpctools.budget.connections import Kept, connect
from hpctools.budget.service import Service
from hpctools.errors import BudgetError, UnreachableError


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Asked:
    """What came to the server.

    Attributes:
        connections: by the question that came over each.
        hang_up: how often it hangs up instead of answering.
    """

    connections: list[tuple[str, int]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    hang_up: int = 0
    status: int = 200


@pytest.fixture
def asked() -> Asked:
    return Asked()


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server on this machine; gives its host and port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def host(asked: Asked) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.connections.append((self.path, self.client_address[1]))
            asked.keys.append(self.headers.get("Idempotency-Key", ""))
            if asked.hang_up:
                asked.hang_up -= 1
                self.close_connection = True
                return
            body = json.dumps({"detail": self.path}).encode()
            self.send_response(asked.status)
            self.send_header("Content-Length", str(len(body)))
            if self.path == "/v1/last":
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with serving(Handler) as address:
        yield address


@pytest.fixture
def kept() -> Iterator[Kept]:
    kept = Kept()
    yield kept
    kept.close()


def service(host: str, kept: Kept | None) -> Service:
    return Service("http", host, "", "token", 10.0, kept)


def ports(asked: Asked) -> list[int]:
    return [port for _, port in asked.connections]


def test_a_connection_is_used_again_until_it_has_rested_too_long(host: str, asked: Asked) -> None:
    clock = Clock()
    kept = Kept(4.0, clock)
    often = service(host, kept)
    for path in ("/v1/a", "/v1/b"):
        assert often.ask("GET", path) == {"detail": path}
        clock.now += 3.9
    assert often.ask("POST", "/v1/c", {"a": 1}) == {"detail": "/v1/c"}
    clock.now += 4.0
    assert often.ask("GET", "/v1/d") == {"detail": "/v1/d"}
    first, second, third, fourth = ports(asked)
    assert first == second == third != fourth
    kept.close()


def test_without_a_place_to_keep_it_each_question_has_its_own(host: str, asked: Asked) -> None:
    for _ in range(2):
        service(host, None).ask("GET", "/v1/a")
    assert len(set(ports(asked))) == 2


def test_a_refusal_keeps_it_and_one_that_will_be_hung_up_is_not_kept(
    host: str, asked: Asked, kept: Kept
) -> None:
    often = service(host, kept)
    asked.status = 403
    with pytest.raises(BudgetError, match="/v1/a"):
        often.ask("GET", "/v1/a")
    asked.status = 200
    often.ask("GET", "/v1/last")
    often.ask("GET", "/v1/b")
    first, second, third = ports(asked)
    assert first == second != third


def test_who_is_hung_up_on_asks_once_more_over_a_new_connection_with_the_same_key(
    host: str, asked: Asked, kept: Kept
) -> None:
    often = service(host, kept)
    often.ask("GET", "/v1/a")
    asked.hang_up = 1
    assert often.ask("POST", "/v1/b", {}) == {"detail": "/v1/b"}
    assert [path for path, _ in asked.connections] == ["/v1/a", "/v1/b", "/v1/b"]
    assert asked.keys[1] == asked.keys[2] != ""
    asked.hang_up = 2
    with pytest.raises(UnreachableError):
        often.ask("POST", "/v1/c", {})
    assert len(asked.connections) == 5, "and no third time"
    asked.hang_up = 1
    with pytest.raises(UnreachableError):
        service(host, None).ask("GET", "/v1/d")


@pytest.mark.parametrize("error", [BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError])
def test_a_connection_that_ends_in_the_moment_is_given_up_for_a_new_one(
    host: str, asked: Asked, kept: Kept, error: type[OSError]
) -> None:
    """What writing on one says that the other side has reset; with TLS it is no ConnectionError."""

    class Broken(http.client.HTTPConnection):
        def request(self, *question: object, **more: object) -> None:
            raise error

    broken = Broken(host, timeout=10.0)
    broken.connect()
    kept.give(broken)
    assert service(host, kept).ask("POST", "/v1/a", {}) == {"detail": "/v1/a"}
    assert broken.sock is None, "closed"


def test_one_that_the_service_has_closed_is_not_used(host: str, asked: Asked, kept: Kept) -> None:
    connection = connect("http", host, 10.0)
    connection.connect()
    kept.give(connection)
    connection.sock.shutdown(2)
    assert kept.take() is None
    assert connection.sock is None, "and closed"
    assert asked.connections == []


def test_each_is_one_threads_alone(host: str, asked: Asked, kept: Kept) -> None:
    often = service(host, kept)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: often.ask("POST", f"/v1/{n}", {})["detail"], range(200)))
    assert answers == [f"/v1/{n}" for n in range(200)]
    assert len(set(ports(asked))) <= 8


@pytest.fixture
def dripping() -> Iterator[str]:
    """A proxy that begins an answer, and goes on with a byte of it now and then; without an end."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            begun = b"HTTP/1.1 200 OK\r\n" if "head" in self.path else b"HTTP/1.1 200 OK\r\n\r\n"
            self.wfile.write(begun)
            while not over.wait(0.02):
                try:
                    self.wfile.write(b"x")
                except OSError:
                    return

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with serving(Handler) as address:
        yield address
        over.set()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("path", ["/v1/head", "/v1/body"])
def test_an_answer_that_does_not_end_is_not_waited_for(dripping: str, kept: Kept, path: str) -> None:
    """Each byte comes in time; the whole does not."""
    with pytest.raises(UnreachableError, match="does not answer: timed out"):
        replace(service(dripping, kept), within=0.3).ask("GET", path)
    assert kept.take() is None


def test_a_connection_has_its_time_for_each_answer(host: str, asked: Asked, kept: Kept) -> None:
    often = replace(service(host, kept), within=5.0)
    often.ask("GET", "/v1/a")
    with pytest.raises(UnreachableError, match="timed out"):
        replace(often, within=0.0).ask("GET", "/v1/none")
    for each in (often, service(host, kept), often):
        assert each.ask("GET", "/v1/b") == {"detail": "/v1/b"}
    assert often.ask("GET", "/v1/last") == {"detail": "/v1/last"}
    assert [path for path, _ in asked.connections] == ["/v1/a", "/v1/b", "/v1/b", "/v1/b", "/v1/last"]
    _, *same = ports(asked)
    assert len(set(same)) == 1


def test_of_many_only_some_are_kept(kept: Kept) -> None:
    made = [connect("http", "127.0.0.1:1", 1.0) for _ in range(20)]
    for connection in made:
        kept.give(connection)
    assert len(kept._idle) == connections._MOST
    assert [each for _, each in kept._idle] == made[-connections._MOST :]


def test_what_tls_trusts_is_read_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """And names are checked: reading it takes longer than a question."""
    clock = Clock()
    monkeypatch.setattr(connections.time, "monotonic", clock)
    connections._trusted.cache_clear()
    first, second = (connect("https", "hpc.example", 1.0)._context for _ in range(2))  # type: ignore[attr-defined]
    clock.now += connections._TRUSTED_SECONDS
    third = connect("https", "hpc.example", 1.0)._context  # type: ignore[attr-defined]
    assert first is second is not third
    assert third.check_hostname
    assert third.verify_mode == ssl.CERT_REQUIRED

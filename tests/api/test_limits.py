from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Semaphore
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.settings import Settings

PROBLEM = "application/problem+json"


@pytest.fixture(params=[{}])
def app(request: pytest.FixtureRequest, sqlite_service: Any, site_path: Any, now: int) -> Iterator[Any]:
    url = sqlite_service.engine.url.render_as_string()
    settings = Settings(database_url=url, site=site_path, most_request_bytes=1000, **request.param)
    app = create_app(settings, clock=lambda: now)
    yield app
    app.state.context.engine.dispose()


def pieces(count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield b" " * 100


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("length", ["told", "not told"])
def test_a_request_that_is_too_large(app: Any, sqlite_service: Any, key: str | None, length: str) -> None:
    client = TestClient(app, raise_server_exceptions=False)
    client.headers["Authorization"] = f"Bearer {sqlite_service.token(None)}"
    if key:
        client.headers["Idempotency-Key"] = key
    content: Any = b" " * 1001 if length == "told" else pieces(11)
    answer = client.post("/v1/reconciliations", content=content, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (413, PROBLEM)
    assert "at most 1000 bytes" in answer.json()["detail"]
    assert "X-Request-ID" in answer.headers
    just = b'{"month": "2026-11"}'.ljust(1000)
    answer = client.post("/v1/reconciliations", content=just, headers={"Content-Type": "application/json"})
    assert answer.status_code == 202


def test_a_length_that_is_none(app: Any) -> None:
    answer = TestClient(app).post("/v1/tokens", content=b"", headers={"Content-Length": "-1"})
    assert answer.status_code == 413


@pytest.mark.parametrize("app", [{"answer_seconds": 0.2}], indirect=True)
def test_an_answer_that_takes_too_long(app: Any) -> None:
    go, ended = Event(), Event()

    def slow() -> dict[str, int]:
        assert go.wait(60)
        ended.set()
        return {}

    app.get("/v1/slow")(slow)
    with TestClient(app) as client:
        try:
            answer = client.get("/v1/slow")
            assert not ended.is_set()
        finally:
            go.set()
        assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM)
        assert answer.headers["Retry-After"] == "30"
        assert ended.wait(60)


@pytest.mark.parametrize("app", [{"most_at_once": 2}], indirect=True)
def test_more_than_can_be_answered_is_refused_at_once(app: Any, sqlite_service: Any) -> None:
    go, begun = Event(), Semaphore(0)

    def slow() -> dict[str, int]:
        begun.release()
        assert go.wait(60)
        return {}

    app.get("/v1/slow")(slow)
    with TestClient(app) as client, ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(client.get, "/v1/slow") for _ in range(2)]
        try:
            assert all(begun.acquire(timeout=60) for _ in range(2))
            answer = client.get("/v1/slow")
            told = [client.get(path).status_code for path in ("/livez", "/healthz", "/metrics")]
        finally:
            go.set()
        assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM)
        assert answer.headers["Retry-After"] == "2"
        # Without a token /metrics opens to nobody, but it is asked.
        assert told == [200, 200, 401]
        assert [each.result(60).status_code for each in waiting] == [200, 200]
        assert client.get("/v1/slow").status_code == 200

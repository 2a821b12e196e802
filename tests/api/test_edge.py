from __future__ import annotations

from typing import Any

import pytest

from api.headers import HEADERS


@pytest.mark.parametrize("path", ["/healthz", "/login", "/v1/accounts", "/", "/nothing"])
def test_head_is_get_without_the_body(november_service: Any, path: str) -> None:
    client = november_service.client("nlp")
    client.headers["X-Request-ID"] = "same"
    get, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers == get.headers
    assert get.content


def test_head_opens_nothing_that_get_does_not(sqlite_service: Any) -> None:
    assert sqlite_service.anonymous().head("/v1/accounts").status_code == 401
    assert sqlite_service.client("nlp").head("/v1/accounts/cv/statement/2026-11").status_code == 404
    assert sqlite_service.anonymous().head("/logout").status_code == 405


def test_answers_to_our_own_bugs_have_the_headers_too(sqlite_service: Any) -> None:
    def bug() -> None:
        raise RuntimeError("the inside")

    sqlite_service.app.get("/bug")(bug)
    for accept in ("text/html", "application/json"):
        answer = sqlite_service.anonymous().get("/bug", headers={"Accept": accept})
        assert answer.status_code == 500
        assert HEADERS.items() <= {name: answer.headers.get(name) for name in HEADERS}.items()

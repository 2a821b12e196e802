from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.rooted import route_of

ROOT = "/budgets"


@pytest.fixture
def behind_proxy(november_service: Any) -> TestClient:
    """An administrator's browser; the path is put before that of each request, as uvicorn does."""
    app = november_service.app

    async def under_root(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "root_path": ROOT, "path": ROOT + scope["path"]}, receive, send)

    client = TestClient(under_root, follow_redirects=False, raise_server_exceptions=False)
    token = november_service.token(None, scopes=("admin",))
    client.headers |= {"Accept": "text/html", "Cookie": f"hpctools_token={token}"}
    client.headers["Authorization"] = f"Bearer {token}"
    return client


PAGES = (
    *("/", "/accounts", "/accounts/nlp-lab-a", "/accounts/root", "/accounts/nlp/budget", "/alerts"),
    *("/reconciliation", "/enforcement", "/accounts/nlp/jobs?sort=cost", "/accounts/nlp/entries"),
    *("/accounts/nlp/bill?node_group=reserved", "/jobs/101", "/login", "/nothing", "/bug"),
)


def test_every_address_in_a_page_is_under_the_path_of_the_proxy(
    november_service: Any, behind_proxy: TestClient
) -> None:
    def bug() -> None:
        raise RuntimeError("the inside")

    november_service.app.get("/bug")(bug)
    # What was made for somebody who comes without the proxy is not shown through it.
    without = {"Cookie": behind_proxy.headers["Cookie"], "Accept": "text/html"}
    november_service.anonymous().get("/accounts", headers=without)
    for page in PAGES:
        text = behind_proxy.get(page).text
        found = re.findall(r'\b(?:href|src|srcset|action|formaction)="(/[^"]*)"', text)
        assert found, page
        assert [address for address in found if not address.startswith(f"{ROOT}/")] == [], page


def test_signing_in_and_out_through_a_proxy(november_service: Any, behind_proxy: TestClient) -> None:
    del behind_proxy.headers["Cookie"]
    sent = behind_proxy.get("/accounts/nlp?period=2026-11")
    there = "/login?next=%2Faccounts%2Fnlp%3Fperiod%3D2026-11"
    assert (sent.status_code, sent.headers["location"]) == (303, ROOT + there)
    data = {"token": november_service.token("nlp"), "next": "/accounts/nlp"}
    came = behind_proxy.post("/login", data=data)
    assert (came.status_code, came.headers["location"]) == (303, f"{ROOT}/accounts/nlp")
    assert f"Path={ROOT};" in came.headers["set-cookie"]
    left = behind_proxy.post("/logout")
    assert left.headers["location"] == f"{ROOT}/login"
    assert f"Path={ROOT};" in left.headers["set-cookie"]


def test_programs_get_tags_and_problems_through_a_proxy(behind_proxy: TestClient) -> None:
    answer = behind_proxy.get("/v1/accounts")
    again = behind_proxy.get("/v1/accounts", headers={"If-None-Match": answer.headers["etag"]})
    assert (answer.headers["cache-control"], again.status_code) == ("private, no-cache", 304)
    # A browser's Accept does not make a page of a program's problem.
    lost = behind_proxy.get("/v1/accounts/nobody/statement/2026-11")
    assert (lost.status_code, lost.headers["content-type"]) == (404, "application/problem+json")


def test_what_is_sent_twice_with_a_key_is_done_once_through_a_proxy(behind_proxy: TestClient) -> None:
    headers, body = {"Idempotency-Key": "k1"}, {"month": "2026-11"}
    first = behind_proxy.post("/v1/reconciliations", json=body, headers=headers)
    again = behind_proxy.post("/v1/reconciliations", json=body, headers=headers)
    assert first.status_code == 202
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    token = {"name": "robot", "scopes": ["read"]}
    behind_proxy.post("/v1/tokens", json=token, headers=headers)
    assert "idempotent-replayed" not in behind_proxy.post("/v1/tokens", json=token, headers=headers).headers


@pytest.mark.parametrize(
    ("root", "path", "route"),
    [
        ("", "/v1/x", "/v1/x"),
        ("/budgets", "/budgets/v1/x", "/v1/x"),
        ("/budgets/", "/budgets/v1/x", "/v1/x"),
        ("/budgets", "/budgetsv1/x", "/budgetsv1/x"),
        ("/budgets", "/v1/x", "/v1/x"),
        ("/a", "/a/a/x", "/a/x"),
    ],
)
def test_the_path_is_taken_off_once(root: str, path: str, route: str) -> None:
    assert route_of({"root_path": root, "path": path}) == route

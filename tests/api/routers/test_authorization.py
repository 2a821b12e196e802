"""Every route, and what it answers to whom. A route that is missing here fails the suite."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi import FastAPI, Request

from api.deps import COOKIE
from api.posting import form_token

MONTH = "2026-11"


@dataclass(frozen=True)
class Row:
    """One route.

    Attributes:
        statuses: in the order of WHO; without a valid token it is 401 everywhere.
    """

    path: str
    statuses: tuple[int, ...]
    body: Any = None


# Account and scopes of the tokens that ask.
WHO: dict[str, tuple[str | None, tuple[Any, ...]]] = {
    "member of nlp-lab-a": ("nlp-lab-a", ("read",)),
    "member of nlp-lab-b": ("nlp-lab-b", ("read",)),
    "head of nlp": ("nlp", ("write",)),
    "head of cv": ("cv", ("write",)),
    "reader of nlp": ("nlp", ("read",)),
    "enforcer of the site": ("root", ("enforce",)),
    "administrator": (None, ()),
}

EVERYBODY = (200, 200, 200, 200, 200, 200, 200)
READS_NLP = (404, 404, 200, 404, 200, 200, 200)


def only_admin(status: int) -> tuple[int, ...]:
    return (403, 403, 403, 403, 403, 403, status)


LEASE = {"node": "login-1", "claim": "1-1", "user": "nlp1"}
REPORT = {
    "agent": "0123456789abcdef",
    "sequence": 1,
    "sample_age": 0,
    "cpus": 16,
    "cpu": 0.1,
    "memory": 0.1,
    "sessions": [],
}

PROGRAMS = {
    ("GET", "/v1/accounts"): Row("/v1/accounts", EVERYBODY),
    ("GET", "/v1/accounts/{name}/statement/{month}"): Row(f"/v1/accounts/nlp/statement/{MONTH}", READS_NLP),
    ("GET", "/v1/accounts/{name}/jobs"): Row("/v1/accounts/nlp/jobs", READS_NLP),
    ("GET", "/v1/accounts/{name}/entries"): Row("/v1/accounts/nlp/entries", READS_NLP),
    ("GET", "/v1/accounts/{name}/runs"): Row("/v1/accounts/nlp/runs", READS_NLP),
    ("GET", "/v1/accounts/{name}/waste"): Row("/v1/accounts/nlp/waste", READS_NLP),
    # There are no jobs here; test_costs has who sees which.
    ("GET", "/v1/jobs/{job_id}"): Row("/v1/jobs/1", (404,) * 7),
    ("GET", "/v1/accounts/{name}/outlook"): Row("/v1/accounts/nlp/outlook", READS_NLP),
    ("GET", "/v1/accounts/{name}/budget"): Row("/v1/accounts/nlp/budget", READS_NLP),
    # There is no forecast without days, which only those hear who may see the account.
    ("GET", "/v1/accounts/{name}/forecast"): Row("/v1/accounts/nlp/forecast", (404,) * 7),
    # A budget is given by who holds the account above: no head raises their own.
    ("PUT", "/v1/accounts/{name}/budget"): Row(
        "/v1/accounts/nlp/budget",
        (403, 403, 403, 404, 403, 403, 200),
        {"budget": {"amount": "1.00"}, "why": "test"},
    ),
    ("GET", "/v1/accounts/{name}/split"): Row("/v1/accounts/nlp/split", READS_NLP),
    ("PUT", "/v1/accounts/{name}/split"): Row(
        "/v1/accounts/nlp/split",
        (403, 403, 200, 404, 403, 403, 200),
        {"parts": {"nlp-lab-a": "1.00"}, "why": "test"},
    ),
    ("POST", "/v1/accounts/{name}/approvals"): Row(
        "/v1/accounts/nlp/approvals",
        (403, 403, 201, 404, 403, 403, 201),
        {"amount": "1.00", "until": "2026-12-24", "why": "test"},
    ),
    ("GET", "/v1/alerts"): Row("/v1/alerts", EVERYBODY),
    ("GET", "/v1/rates"): Row("/v1/rates", EVERYBODY),
    ("GET", "/v1/enforcement/plan"): Row("/v1/enforcement/plan", (403, 403, 403, 403, 403, 200, 200)),
    ("POST", "/v1/enforcement/apply"): Row("/v1/enforcement/apply", (403, 403, 403, 403, 403, 200, 200)),
    ("POST", "/v1/enforcement/accounts/{name}/undo"): Row(
        "/v1/enforcement/accounts/nlp/undo", (403, 403, 403, 403, 403, 200, 200)
    ),
    ("GET", "/v1/reconciliations"): Row("/v1/reconciliations", only_admin(200)),
    ("POST", "/v1/reconciliations"): Row("/v1/reconciliations", only_admin(202), {"month": MONTH}),
    ("GET", "/v1/reconciliations/{number}"): Row("/v1/reconciliations/1", only_admin(404)),
    ("GET", "/v1/audit"): Row("/v1/audit", only_admin(200)),
    ("GET", "/v1/tokens"): Row("/v1/tokens", only_admin(200)),
    ("POST", "/v1/tokens"): Row("/v1/tokens", only_admin(201), {"name": "new", "account": "nlp"}),
    ("DELETE", "/v1/tokens/{name}"): Row("/v1/tokens/nothing", only_admin(404)),
    # There is no login node, which only those hear who may ask for this person.
    ("POST", "/v1/login/sessions"): Row(
        "/v1/login/sessions", (503, 403, 503, 403, 503, 503, 503), {"user": "nlp1"}
    ),
    ("GET", "/v1/login/sessions"): Row("/v1/login/sessions", EVERYBODY),
    ("DELETE", "/v1/login/sessions/{number}"): Row("/v1/login/sessions/1", (404,) * 7),
    ("GET", "/v1/login/nodes"): Row("/v1/login/nodes", EVERYBODY),
    ("POST", "/v1/login/leases"): Row("/v1/login/leases", only_admin(200), LEASE),
    ("DELETE", "/v1/login/leases/{node}/{claim}"): Row("/v1/login/leases/login-1/9-9", only_admin(404)),
    ("PUT", "/v1/login/nodes/{node}/report"): Row("/v1/login/nodes/login-1/report", only_admin(200), REPORT),
    ("DELETE", "/v1/login/nodes/{node}"): Row("/v1/login/nodes/login-9", only_admin(404)),
    ("PUT", "/v1/login/nodes/{node}/drain"): Row(
        "/v1/login/nodes/login-1/drain", only_admin(200), {"draining": True}
    ),
    ("GET", "/metrics"): Row("/metrics", (403, 403, 403, 403, 403, 200, 200)),
}
# Pages: nobody, the head of nlp, the head of cv, a lab of nlp, an administrator.
BROWSERS = {
    ("GET", "/"): ("/", (303, 200, 200, 200, 200)),
    ("GET", "/accounts/{name}"): ("/accounts/nlp", (303, 200, 404, 404, 200)),
    ("GET", "/accounts"): ("/accounts", (303, 200, 200, 200, 200)),
    ("GET", "/accounts/{name}/trend.svg"): ("/accounts/nlp/trend.svg", (303, 200, 404, 404, 200)),
    ("GET", "/accounts/{name}/jobs"): ("/accounts/nlp/jobs", (303, 200, 404, 404, 200)),
    ("GET", "/accounts/{name}/entries"): ("/accounts/nlp/entries", (303, 200, 404, 404, 200)),
    # Of a node group that the account is charged with a part of; here nothing was ever charged.
    ("GET", "/accounts/{name}/bill"): ("/accounts/root/bill?node_group=reserved", (303, 404, 404, 404, 200)),
    # There is no job; tests/api/pages/test_costs.py has some, and who may see them.
    ("GET", "/jobs/{number}"): ("/jobs/101", (303, 404, 404, 404, 404)),
    ("GET", "/accounts/{name}/statement/{month}"): (
        f"/accounts/nlp/statement/{MONTH}?format=csv",
        (303, 200, 404, 404, 200),
    ),
    ("GET", "/accounts/{name}/jobs.csv"): ("/accounts/nlp/jobs.csv", (303, 200, 404, 404, 200)),
    ("GET", "/accounts/{name}/entries.csv"): ("/accounts/nlp/entries.csv", (303, 200, 404, 404, 200)),
    ("GET", "/accounts.csv"): ("/accounts.csv", (303, 200, 200, 200, 200)),
    ("GET", "/accounts/{name}/bill.csv"): (
        "/accounts/root/bill.csv?node_group=reserved",
        (303, 404, 404, 404, 200),
    ),
    ("GET", "/jobs/{number}.csv"): ("/jobs/101.csv", (303, 404, 404, 404, 404)),
    ("GET", "/accounts/{name}/budget"): ("/accounts/nlp/budget", (303, 200, 404, 404, 200)),
    ("GET", "/alerts"): ("/alerts", (303, 200, 200, 200, 200)),
    ("GET", "/reconciliation"): ("/reconciliation", (303, 403, 403, 403, 200)),
    ("GET", "/enforcement"): ("/enforcement", (303, 200, 200, 200, 200)),
    # Nodes for everybody; tests/api/pages/test_login_nodes_page.py has who sees whose sessions.
    ("GET", "/login-nodes"): ("/login-nodes", (303, 200, 200, 200, 200)),
}
# Forms of pages, sent by who has signed in with the tokens of WHO; 422 is a form that was let in.
FORMS = {
    ("POST", "/reconciliation"): Row("/reconciliation", only_admin(303), {"month": MONTH}),
    ("POST", "/accounts/{name}/budget/change"): Row(
        "/accounts/nlp/budget/change", (404, 404, 403, 404, 403, 403, 422), {}
    ),
    ("POST", "/accounts/{name}/budget/split"): Row(
        "/accounts/nlp/budget/split", (404, 404, 422, 404, 403, 403, 422), {}
    ),
    ("POST", "/accounts/{name}/budget/approve"): Row(
        "/accounts/nlp/budget/approve", (404, 404, 422, 404, 403, 403, 422), {}
    ),
}
VISITORS = ("nlp", "cv", "nlp-lab-a", None)
# Open to everybody on purpose: they tell nothing about anybody.
OPEN = {
    ("GET", "/livez"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/pages.js"),
    ("GET", "/login"),
    ("POST", "/login"),
    ("GET", "/login/oidc"),
    ("GET", "/login/oidc/callback"),
    ("POST", "/logout"),
    ("GET", "/openapi.json"),
}


def routes(router: Any) -> Iterator[tuple[str, str]]:
    """Method and path of every route, those of included routers and mounts too."""
    for route in router.routes:
        inner = getattr(route, "original_router", route)
        if hasattr(inner, "routes"):
            yield from routes(inner)
        else:
            yield from ((method, route.path) for method in route.methods - {"HEAD"})


def test_every_route_is_in_one_of_the_tables(sqlite_service: Any) -> None:
    assert set(routes(sqlite_service.app)) == set(PROGRAMS) | set(BROWSERS) | set(FORMS) | OPEN


def test_a_new_route_without_an_entry_would_be_noticed(sqlite_service: Any) -> None:
    app: FastAPI = sqlite_service.app
    app.get("/v1/forgotten")(lambda: {})  # noqa: PIE807
    assert ("GET", "/v1/forgotten") in set(routes(app))


def ask(client: Any, route: tuple[str, str]) -> int:
    row = PROGRAMS[route]
    status: int = client.request(route[0], row.path, json=row.body).status_code
    return status


@pytest.mark.parametrize("route", PROGRAMS)
def test_without_a_valid_token_no_route_of_programs_opens(
    sqlite_service: Any, route: tuple[str, str], now: int
) -> None:
    expired = sqlite_service.anonymous()
    expired.headers["Authorization"] = f"Bearer {sqlite_service.token(None, expires_at=now)}"
    assert (ask(sqlite_service.anonymous(), route), ask(expired, route)) == (401, 401)


@pytest.mark.parametrize("route", PROGRAMS)
def test_programs_may_what_their_token_opens(sqlite_service: Any, route: tuple[str, str]) -> None:
    found = {
        who: ask(sqlite_service.client(account, *scopes), route) for who, (account, scopes) in WHO.items()
    }
    assert found == dict(zip(WHO, PROGRAMS[route].statuses, strict=True))


@pytest.mark.parametrize("route", BROWSERS)
def test_browsers_see_what_their_token_opens(sqlite_service: Any, route: tuple[str, str]) -> None:
    path, expected = BROWSERS[route]
    nobody = sqlite_service.anonymous()
    nobody.headers["Accept"] = "text/html"
    clients = [nobody, *(sqlite_service.browser(account) for account in VISITORS)]
    assert tuple(client.request(route[0], path).status_code for client in clients) == expected


def form_token_of(client: Any) -> str:
    """What the session's own pages put into their forms."""
    cookie = f"{COOKIE}={client.cookies[COOKIE]}".encode()
    return form_token(Request({"type": "http", "headers": [(b"cookie", cookie)]}))


@pytest.mark.parametrize("route", FORMS)
def test_forms_do_what_the_session_may(sqlite_service: Any, route: tuple[str, str]) -> None:
    row, found = FORMS[route], {}
    for who, (account, scopes) in WHO.items():
        client = sqlite_service.browser(account, *scopes)
        data = {**row.body, "form": form_token_of(client)}
        found[who] = client.post(row.path, data=data).status_code
    assert found == dict(zip(WHO, row.statuses, strict=True))


@pytest.mark.parametrize("route", FORMS)
def test_forms_that_are_not_of_the_session_do_nothing(sqlite_service: Any, route: tuple[str, str]) -> None:
    row, admin, other = FORMS[route], sqlite_service.browser(None), sqlite_service.browser(None)
    for token in (None, "", "x", "\xe9", form_token_of(other)):
        sent = row.body | ({} if token is None else {"form": token})
        assert admin.post(row.path, data=sent).status_code == 403
    mine = row.body | {"form": form_token_of(admin)}
    assert admin.post(row.path, data=mine, headers={"Origin": "https://evil.example"}).status_code == 403
    nobody = sqlite_service.anonymous()
    nobody.headers["Accept"] = "text/html"
    assert nobody.post(row.path, data=mine).headers["location"] == "/login"


def test_a_cookie_opens_pages_only_and_a_bearer_token_programs_only(sqlite_service: Any) -> None:
    assert sqlite_service.browser(None).get("/v1/accounts").status_code == 401
    assert sqlite_service.client(None).get("/").status_code == 401


def test_others_accounts_cannot_be_told_from_those_that_do_not_exist(sqlite_service: Any) -> None:
    client = sqlite_service.client("nlp")
    answers = [client.get(f"/v1/accounts/{name}/statement/{MONTH}").json() for name in ("cv", "nothing")]
    for answer in answers:
        answer.pop("instance")
    assert answers[0] == answers[1]


def test_a_lab_is_part_of_its_department_but_not_the_other_way(sqlite_service: Any) -> None:
    def seen(account: str | None) -> list[str]:
        listed = sqlite_service.client(account).get("/v1/accounts").json()
        return [entry["name"] for entry in listed["accounts"]]

    assert seen("nlp") == ["nlp", "nlp-lab-a", "nlp-lab-b"]
    assert seen("nlp-lab-a") == ["nlp-lab-a"]
    assert seen(None)[0] == "root"
    assert len(seen(None)) == 8


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer x", f"Bearer hpct_{'A' * 43}", "Basic aGVhZDpwdw==", "Bearer hpct_' OR 1=1 --"],
)
def test_without_a_valid_token_the_answer_says_what_is_needed(sqlite_service: Any, header: str) -> None:
    client = sqlite_service.anonymous()
    answer = client.get("/v1/accounts", headers={"Authorization": header} if header else {})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.json()["detail"] == "A valid token is needed: Authorization: Bearer TOKEN."


def test_a_token_of_an_account_that_left_the_site_is_refused(sqlite_service: Any) -> None:
    answer = sqlite_service.client("closed-department").get("/v1/accounts")
    assert (answer.status_code, answer.json()["title"]) == (403, "Forbidden")


def test_expired_tokens_open_nothing(sqlite_service: Any, now: int) -> None:
    client = sqlite_service.anonymous()
    for expires, status in ((now + 1, 200), (now, 401)):
        token = sqlite_service.token("nlp", expires_at=expires)
        assert client.get("/v1/accounts", headers={"Authorization": f"Bearer {token}"}).status_code == status

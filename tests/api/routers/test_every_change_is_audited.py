"""Every route that writes stands in the audit trail; a new one that is in no table fails the suite."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.routers.test_authorization import FORMS, PROGRAMS

Route = tuple[str, str]
# What each route's change is called in the trail.
AUDITED: dict[Route, str] = {
    ("PUT", "/v1/accounts/{name}/budget"): "budget.set",
    ("PUT", "/v1/accounts/{name}/split"): "budget.set",
    ("POST", "/v1/accounts/{name}/approvals"): "budget.approve",
    ("POST", "/v1/reconciliations"): "reconciliation.start",
    ("POST", "/v1/tokens"): "token.create",
    ("DELETE", "/v1/tokens/{name}"): "token.revoke",
    ("PUT", "/v1/login/nodes/{node}/drain"): "login.drain",
}
# Audited with what they take and give back, which is nothing here: tests/api/services/test_enforcement.py;
# and the end of a session, and of a node, of which there is none: tests/api/routers/test_login.py.
ELSEWHERE: set[Route] = {
    ("POST", "/v1/enforcement/apply"),
    ("POST", "/v1/enforcement/accounts/{name}/undo"),
    ("DELETE", "/v1/login/sessions/{number}"),
    ("DELETE", "/v1/login/nodes/{node}"),
}
# What login nodes and people who log in say every few seconds, which decides nothing for anybody else.
NO_CHANGE: set[Route] = {
    ("POST", "/v1/login/sessions"),
    ("POST", "/v1/login/leases"),
    ("DELETE", "/v1/login/leases/{node}/{claim}"),
    ("PUT", "/v1/login/nodes/{node}/report"),
}
# Forms, by the same services: tests/api/pages/test_account_budget_page.py, test_reconciliation_page.py.
BY_FORM: set[Route] = {
    ("POST", "/reconciliation"),
    ("POST", "/accounts/{name}/budget/change"),
    ("POST", "/accounts/{name}/budget/split"),
    ("POST", "/accounts/{name}/budget/approve"),
}


def trail(admin: Any) -> list[str]:
    return [entry["action"] for entry in admin.get("/v1/audit?limit=1000").json()["entries"]]


def test_every_route_that_writes_is_in_one_of_the_tables() -> None:
    writing = {route for route in PROGRAMS if route[0] != "GET"}
    assert writing == set(AUDITED) | ELSEWHERE | NO_CHANGE
    assert set(FORMS) == BY_FORM


@pytest.mark.parametrize("route", AUDITED)
def test_a_change_by_a_program_stands_in_the_trail(sqlite_service: Any, route: Route) -> None:
    row = PROGRAMS[route]
    path = row.path
    if route == ("DELETE", "/v1/tokens/{name}"):
        sqlite_service.token("nlp", name="leaves")
        path = "/v1/tokens/leaves"
    admin = sqlite_service.client(None)
    before = trail(admin).count(AUDITED[route])
    assert admin.request(route[0], path, json=row.body).status_code < 300
    assert trail(admin).count(AUDITED[route]) == before + 1

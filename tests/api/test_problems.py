from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.settings import Settings

PROBLEM = "application/problem+json"


@pytest.mark.parametrize(
    ("method", "path", "status", "title"),
    [
        ("GET", "/v1/nothing", 404, "Not Found"),
        ("GET", "/nothing", 404, "Not Found"),
        ("POST", "/v1/accounts", 405, "Method Not Allowed"),
        ("GET", "/v1/accounts/nothing/statement/2026-11", 404, "Not Found"),
        ("GET", "/v1/accounts/nlp/statement/2026-13", 422, "Unprocessable Content"),
        ("GET", f"/v1/accounts/{'x' * 129}/statement/2026-11", 422, "Unprocessable Content"),
    ],
)
def test_every_error_is_a_problem(
    sqlite_service: Any, method: str, path: str, status: int, title: str
) -> None:
    answer = sqlite_service.client(None).request(method, path)
    assert answer.headers["content-type"] == PROBLEM
    body = answer.json()
    errors = body.pop("errors", None)
    assert body.pop("detail")
    assert body in (
        {"type": "about:blank", "title": title, "status": status, "instance": path},
        {"type": "about:blank", "title": "Unprocessable Entity", "status": status, "instance": path},
    )
    assert (errors is not None) == (status == 422)


def test_a_wrong_month_says_what_was_expected(sqlite_service: Any) -> None:
    body = sqlite_service.client(None).get("/v1/accounts/nlp/statement/11-2026").json()
    assert body["errors"] == [
        {"field": "month", "message": "'11-2026' is not a month; expected YYYY-MM, for example 2026-11"}
    ]


def test_people_get_a_page_instead(sqlite_service: Any) -> None:
    answer = sqlite_service.browser(None).get("/accounts/nothing")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "There is no account of this name that you may see." in answer.text


def test_programs_get_problems_under_v1_whatever_they_accept(sqlite_service: Any) -> None:
    answer = sqlite_service.client(None).get("/v1/nothing", headers={"Accept": "text/html"})
    assert answer.headers["content-type"] == PROBLEM


def test_a_failure_behind_us_tells_nothing_of_the_inside(tmp_path: Path, sqlite_service: Any) -> None:
    client = sqlite_service.client(None)
    settings = Settings(
        database_url=str(sqlite_service.engine.url), site=tmp_path / "secret-place" / "site.yaml"
    )
    app = create_app(settings)
    answer = TestClient(app, raise_server_exceptions=False).get("/v1/accounts", headers=client.headers)
    app.state.context.engine.dispose()
    assert (answer.status_code, answer.headers["content-type"]) == (500, PROBLEM)
    assert "secret-place" not in answer.text


def test_a_bug_is_a_problem_too(sqlite_service: Any) -> None:
    def bug() -> None:
        raise RuntimeError("the inside")

    sqlite_service.app.get("/v1/bug")(bug)
    answer = sqlite_service.anonymous().get("/v1/bug")
    assert (answer.status_code, answer.headers["content-type"]) == (500, PROBLEM)
    assert "the inside" not in answer.text


def test_without_its_database_the_service_is_unavailable(tmp_path: Path, site_path: Path) -> None:
    url = f"postgresql://nobody@/none?host={tmp_path}"
    client = TestClient(create_app(Settings(database_url=url, site=site_path)), raise_server_exceptions=False)
    for path, headers in (("/healthz", {}), ("/v1/accounts", {"Authorization": f"Bearer hpct_{'A' * 43}"})):
        answer = client.get(path, headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM)


def test_the_openapi_description_knows_problems_and_the_token(sqlite_service: Any) -> None:
    document = sqlite_service.anonymous().get("/openapi.json").json()
    statement = document["paths"]["/v1/accounts/{name}/statement/{month}"]["get"]
    errors = {"401", "404", "406", "422", "500", "503"}
    assert set(statement["responses"]) == {"200", *errors}
    for status in errors:
        assert list(statement["responses"][status]["content"]) == [PROBLEM]
    assert statement["security"] == [{"HTTPBearer": []}]
    assert "Problem" in document["components"]["schemas"]


def test_the_description_says_what_a_month_is(sqlite_service: Any) -> None:
    document = sqlite_service.anonymous().get("/openapi.json").json()
    (month,) = (
        parameter["schema"]["pattern"]
        for parameter in document["paths"]["/v1/accounts/{name}/statement/{month}"]["get"]["parameters"]
        if parameter["name"] == "month"
    )
    for text in ("2000-01", "2026-11", "2199-12", "1999-12", "2200-01", "2026-00", "2026-13", "2026-1"):
        taken = sqlite_service.client("nlp").get(f"/v1/accounts/nlp/statement/{text}").status_code == 200
        assert taken == bool(re.search(month, text))


def test_every_answer_forbids_others_scripts_and_storing(sqlite_service: Any) -> None:
    for path in ("/healthz", "/login", "/nothing"):
        headers = sqlite_service.anonymous().get(path).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'none';")
        assert "; script-src 'self'; " in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"

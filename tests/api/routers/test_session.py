from __future__ import annotations

from typing import Any

import pytest


def test_signing_in_sets_a_cookie_that_scripts_and_other_sites_cannot_use(sqlite_service: Any) -> None:
    token = sqlite_service.token("nlp")
    answer = sqlite_service.anonymous().post("/login", data={"token": f" {token}\n"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"hpctools_token={token};")
    attributes = {part.strip().split("=")[0].lower() for part in cookie.split(";")}
    assert {"httponly", "samesite", "max-age"} <= attributes
    assert "SameSite=strict" in cookie
    assert "secure" not in attributes


def test_over_https_the_cookie_is_for_https_only(sqlite_service: Any) -> None:
    client = sqlite_service.anonymous()
    answer = client.post("https://testserver/login", data={"token": sqlite_service.token("nlp")})
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize("data", [{}, {"token": ""}, {"token": "hpct_wrong"}])
def test_a_wrong_token_shows_the_form_again(sqlite_service: Any, data: dict[str, str]) -> None:
    answer = sqlite_service.anonymous().post("/login", data=data)
    assert answer.status_code == 401
    assert "This token is not valid." in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ["/login", "/logout"])
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://testserver:81", "http://["])
def test_forms_of_other_sites_are_refused(sqlite_service: Any, path: str, origin: str) -> None:
    data = {"token": sqlite_service.token("nlp")}
    answer = sqlite_service.anonymous().post(path, data=data, headers={"Origin": origin})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_our_own_forms_are_taken(sqlite_service: Any) -> None:
    data = {"token": sqlite_service.token("nlp")}
    answer = sqlite_service.anonymous().post("/login", data=data, headers={"Origin": "http://testserver"})
    assert answer.status_code == 303


def test_signing_out(sqlite_service: Any) -> None:
    browser = sqlite_service.browser("nlp")
    assert browser.get("/").status_code == 200
    assert browser.post("/logout").headers["location"] == "/login"
    assert browser.get("/").headers["location"] == "/login"


def test_a_revoked_token_ends_the_session_at_once(sqlite_service: Any, now: int) -> None:
    from api.services.tokens import create, revoke

    browser = sqlite_service.anonymous()
    browser.headers["Accept"] = "text/html"
    browser.post("/login", data={"token": create(sqlite_service.engine, "guest", "nlp", now)})
    assert browser.get("/").status_code == 200
    revoke(sqlite_service.engine, "guest", now)
    assert browser.get("/").status_code == 303

"""People with browsers sign in at the site's OpenID provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.auth.people import Person
from api.db.access_models import BrowserSession
from api.db.engine import connect, reading
from api.db.migrate import upgrade
from api.routers.session import FLOW
from api.services import sessions
from api.settings import Settings
from hpctools.errors import UsageError

CLIENT, SECRET = "budgets-web", "s3cret:with/signs"


@pytest.fixture
def make_app(
    tmp_path: Path, site_path: Path, campus: Any, database_url: str, now: int
) -> Iterator[Callable[..., Any]]:
    secret, made = tmp_path / "secret", []
    secret.write_text(f"{SECRET}\n")
    engine = connect(database_url)
    upgrade(engine)
    engine.dispose()

    def make(**settings: Any) -> Any:
        given = {
            "database_url": database_url,
            "site": site_path,
            "reconcile_every": 0,
            "oidc_issuer": campus.url,
            "oidc_audience": "budgets",
            "oidc_username_claim": "uid",
            "oidc_groups": {"admins": "admin"},
            "oidc_client_id": CLIENT,
            "oidc_client_secret_file": secret,
        }
        app = create_app(Settings(**(given | settings)), clock=lambda: now)
        made.append(app)
        return app

    yield make
    for app in made:
        app.state.context.engine.dispose()


@pytest.fixture
def browser(make_app: Callable[..., Any]) -> TestClient:
    return open_browser(make_app())


def open_browser(app: Any) -> TestClient:
    client = TestClient(app, follow_redirects=False, raise_server_exceptions=False)
    client.headers["Accept"] = "text/html"
    return client


def to_provider(browser: TestClient, there: str = "") -> str:
    """Begin to sign in; return where the provider sends the browser back to."""
    answer = browser.get("/login/oidc", params={"next": there} if there else None)
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def sign_in(browser: TestClient, campus: Any, there: str = "") -> Any:
    return browser.get(campus.authorize(urlsplit(to_provider(browser, there)).query))


def test_a_head_signs_in_and_sees_their_department(browser: TestClient, campus: Any) -> None:
    assert browser.get("/accounts/nlp?month=2026-11").headers["location"] == (
        "/login?next=%2Faccounts%2Fnlp%3Fmonth%3D2026-11"
    )
    page = browser.get("/login", params={"next": "/accounts/nlp?month=2026-11"})
    assert 'href="/login/oidc?next=%2Faccounts%2Fnlp%3Fmonth%3D2026-11"' in page.text
    answer = sign_in(browser, campus, "/accounts/nlp?month=2026-11")
    assert (answer.status_code, answer.headers["location"]) == (303, "/accounts/nlp?month=2026-11")
    assert browser.get("/accounts/nlp").status_code == 200
    assert browser.get("/accounts/cv").status_code == 404
    # The cookie opens pages only.
    assert browser.get("/v1/accounts").status_code == 401


def test_what_is_asked_of_the_provider(browser: TestClient, campus: Any) -> None:
    asked = [dict(parse_qsl(urlsplit(to_provider(browser)).query)) for _ in range(2)]
    for each in asked:
        derived = {each.pop(name) for name in ("state", "nonce", "code_challenge")}
        assert len(derived) == 3
        assert {len(value) for value in derived} == {43}
        assert each == {
            "response_type": "code",
            "client_id": CLIENT,
            "redirect_uri": "http://testserver/login/oidc/callback",
            "scope": "openid",
            "code_challenge_method": "S256",
        }
    assert sign_in(browser, campus).status_code == 303
    (posted,) = campus.posted
    assert set(posted) == {
        *("grant_type", "code", "redirect_uri", "client_id", "code_verifier", "authorization")
    }


def test_the_cookies_cannot_be_read_by_scripts_nor_sent_by_forms_of_others(
    make_app: Callable[..., Any], campus: Any
) -> None:
    browser = TestClient(make_app(), base_url="https://testserver", follow_redirects=False)
    begun = browser.get("/login/oidc")
    ended = browser.get(campus.authorize(urlsplit(begun.headers["location"]).query))
    for answer in (begun, ended):
        cookies = answer.headers.get_list("set-cookie")
        assert cookies
        for cookie in cookies:
            assert {"HttpOnly", "Path=/", "SameSite=lax"} <= {part.strip() for part in cookie.split(";")}
            assert "Secure" in cookie or "Max-Age=0" in cookie
    kept = next(each for each in ended.headers.get_list("set-cookie") if each.startswith("hpctools_token="))
    assert "Max-Age=43200" in kept
    assert FLOW not in browser.cookies


def test_the_secret_of_a_session_is_not_in_the_store(browser: TestClient, campus: Any, now: int) -> None:
    sign_in(browser, campus)
    secret = browser.cookies["hpctools_token"]
    engine = browser.app.state.context.engine  # type: ignore[attr-defined]
    with reading(engine) as session:
        (row,) = session.query(BrowserSession).all()
        assert secret not in (row.digest, row.person)
        assert row.expires_at == now + sessions.SECONDS
    assert sessions.find(engine, secret, now) == Person("s-1", "nlp-head", ("staff",), campus.url)
    assert sessions.find(engine, secret, now + sessions.SECONDS) is None
    assert sessions.find(engine, f"{secret}x", now) is None
    # The next sign-in forgets those that are over.
    sessions.begin(engine, Person("s-2"), now + sessions.SECONDS)
    with reading(engine) as session:
        assert session.query(BrowserSession).count() == 1


def test_a_provider_that_left_the_settings_opens_nothing_any_more(
    make_app: Callable[..., Any], browser: TestClient, campus: Any
) -> None:
    sign_in(browser, campus)
    assert browser.get("/").status_code == 200
    later = open_browser(make_app(oidc_issuer="https://another.example"))
    later.cookies.set("hpctools_token", browser.cookies["hpctools_token"])
    assert later.get("/").headers["location"] == "/login"
    assert browser.get("/").status_code == 200


def test_signing_out_ends_the_session_and_not_only_the_cookie(browser: TestClient, campus: Any) -> None:
    sign_in(browser, campus)
    copied = browser.cookies["hpctools_token"]
    browser.post("/logout")
    browser.cookies.set("hpctools_token", copied)
    assert browser.get("/").headers["location"] == "/login"


def test_groups_open_what_the_settings_say_also_when_only_userinfo_tells_them(
    browser: TestClient, campus: Any
) -> None:
    campus.person["groups"] = ["admins"]
    campus.told_aside = ("groups", "uid")
    assert sign_in(browser, campus).status_code == 303
    assert browser.get("/accounts/root").status_code == 200


def test_a_provider_that_wants_the_secret_in_the_form(browser: TestClient, campus: Any) -> None:
    campus.discovery = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    assert sign_in(browser, campus).status_code == 303
    (posted,) = campus.posted
    assert (posted["client_secret"], posted["authorization"]) == (SECRET, "")


def test_who_is_named_nowhere_is_told_what_to_do(browser: TestClient, campus: Any) -> None:
    campus.person["uid"] = "stranger"
    answer = sign_in(browser, campus)
    assert answer.status_code == 403
    assert "You are stranger, and nothing is open to you here. Ask your system" in answer.text
    assert "hpctools_token" not in browser.cookies


@pytest.mark.parametrize(
    "change",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "budgets"},
        {"aud": ["other", "budgets-web"], "azp": "other"},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"sub": ""},
    ],
)
def test_id_tokens_that_are_not_for_this_sign_in(
    browser: TestClient, campus: Any, change: dict[str, Any]
) -> None:
    campus.change = change
    answer = sign_in(browser, campus)
    assert answer.status_code == 403
    assert "You could not be signed in: the provider&#39;s ID token is" in answer.text
    assert "hpctools_token" not in browser.cookies


def test_another_browser_cannot_end_what_one_has_begun(make_app: Callable[..., Any], campus: Any) -> None:
    app = make_app()
    victim, attacker = open_browser(app), open_browser(app)
    back = campus.authorize(urlsplit(to_provider(attacker)).query)
    # A link with the attacker's code would sign the victim in as the attacker.
    for begun in (False, True):
        if begun:
            to_provider(victim)
        answer = victim.get(back)
        assert answer.status_code == 403
        assert "begun in another browser" in answer.text
        assert "hpctools_token" not in victim.cookies
    assert campus.posted == []
    assert attacker.get(back).status_code == 303
    # Nor is a code good twice.
    assert attacker.get(back).status_code == 403


@pytest.mark.parametrize(
    "query", ["", "code=x", "state=%C3%A9&code=x", "state=&error=%C3%A9", "state=x&state=y"]
)
def test_answers_that_no_provider_gives(browser: TestClient, campus: Any, query: str) -> None:
    to_provider(browser)
    assert browser.get(f"/login/oidc/callback?{query}").status_code == 403
    assert campus.posted == []


def test_a_code_of_another_sign_in_is_not_taken(browser: TestClient, campus: Any) -> None:
    """PKCE: who has a code and not the browser's secret has nothing."""
    stolen = dict(parse_qsl(urlsplit(campus.authorize(urlsplit(to_provider(browser)).query)).query))["code"]
    back = campus.authorize(urlsplit(to_provider(browser)).query)
    mine = dict(parse_qsl(urlsplit(back).query))["code"]
    answer = browser.get(back.replace(mine, stolen))
    assert answer.status_code == 403
    assert "the provider answers 400: invalid_grant" in answer.text


@pytest.mark.parametrize("iss", ["https://evil.example", ""])
def test_an_answer_of_another_provider_is_not_taken(browser: TestClient, campus: Any, iss: str) -> None:
    back = campus.authorize(urlsplit(to_provider(browser)).query)
    query = {**dict(parse_qsl(urlsplit(back).query)), "iss": iss}
    assert browser.get("/login/oidc/callback", params=query).status_code == 403
    assert campus.posted == []


def test_a_provider_that_says_no_or_is_away(browser: TestClient, campus: Any) -> None:
    campus.refuse = "access_denied"
    answer = sign_in(browser, campus)
    assert answer.status_code == 403
    assert "the provider says: &#39;access_denied&#39;" in answer.text
    campus.refuse, campus.away = "", True
    assert sign_in(browser, campus).status_code == 503


@pytest.mark.parametrize(
    "there", ["https://evil.example/", "//evil.example", "/\\evil.example", "evil", "/a\nb", "/" + "x" * 1001]
)
def test_nobody_is_led_elsewhere(browser: TestClient, campus: Any, there: str) -> None:
    answer = browser.get("/login/oidc", params={"next": there})
    if answer.status_code == 422:
        return
    back = campus.authorize(urlsplit(str(answer.headers["location"])).query)
    assert browser.get(back).headers["location"] == "/"
    form = browser.get("/login", params={"next": there})
    assert 'name="next" value="/"' in form.text


def test_a_provider_that_sends_people_through_an_open_network_is_refused(
    browser: TestClient, campus: Any
) -> None:
    campus.discovery = {"authorization_endpoint": "http://sso.example.org/authorize"}
    assert browser.get("/login/oidc").status_code == 500


def test_without_a_client_there_is_only_the_token(make_app: Callable[..., Any], campus: Any) -> None:
    browser = open_browser(make_app(oidc_client_id=""))
    assert "/login/oidc" not in browser.get("/login").text
    assert browser.get("/login/oidc").status_code == 404
    assert browser.get("/login/oidc/callback").status_code == 404


def test_a_secret_that_cannot_be_read_is_told_at_start(make_app: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the OpenID client's secret"):
        make_app(oidc_client_secret_file=tmp_path / "absent")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(UsageError, match="is empty"):
        make_app(oidc_client_secret_file=tmp_path / "empty")
    with pytest.raises(ValueError, match="HPCTOOLS_API_OIDC_CLIENT_ID needs"):
        make_app(oidc_issuer=None, oidc_audience=None)


def test_a_signed_in_browser_sends_forms_of_this_site_only(browser: TestClient, campus: Any) -> None:
    sign_in(browser, campus)
    assert browser.post("/logout", headers={"Origin": "https://evil.example"}).status_code == 403

"""Pages of alerts, budgets, enforcement and reconciliation, and signing in at a provider, in Chromium."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.app import create_app
from api.services.alerts import raise_alerts
from api.settings import Settings

pytestmark = pytest.mark.system

PATHS = {
    "alerts": "/alerts",
    "reconciliation": "/reconciliation",
    "enforcement": "/enforcement",
    "budget": "/accounts/nlp/budget",
}


@pytest.fixture
def signed_in(tab: Any, serve: Callable[[Any], str], overspent: Any) -> Callable[..., str]:
    def sign_in(account: str | None, *scopes: Any) -> str:
        address = serve(overspent.app)
        tab.window(1200, 1500)
        tab.go(f"{address}/alerts")
        assert tab.evaluate("location.pathname + location.search") == "/login?next=%2Falerts"
        tab.type_and_enter("#token", overspent.token(account, scopes=scopes or ("read",), name="jane.doe"))
        assert tab.evaluate("location.pathname") == "/alerts"
        return address

    return sign_in


@pytest.mark.slow
def test_axe_finds_nothing_and_nothing_is_cut_off(
    tab: Any, signed_in: Callable[..., str], overspent: Any, now: int, picture: Callable[[str, bytes], None]
) -> None:
    raise_alerts(overspent.engine, overspent.site, now)
    address = signed_in(None)
    for width, dark in ((360, False), (1200, True), (1200, False)):
        tab.window(width, 900, dark=dark)
        for name, path in PATHS.items():
            tab.go(f"{address}{path}")
            assert tab.axe() == []
            assert tab.evaluate("document.documentElement.scrollWidth") == width
            if (width, dark) == (1200, False):
                picture(f"page-{name}", tab.screenshot())


def test_a_supervisor_approves_more_by_keyboard_and_without_scripts(
    tab: Any, signed_in: Callable[..., str], overspent: Any
) -> None:
    address = signed_in("nlp", "write")
    tab.go(f"{address}/accounts/nlp/budget#approve")
    form = "form[action$=approve]"
    for field, value in (("amount", "3000.00"), ("until", "2026-12-01")):
        tab.evaluate(f"document.querySelector('{form} [name={field}]').value = '{value}'")
    tab.type_and_enter(f"{form} [name=why]", "paper deadline")
    assert tab.evaluate("location.pathname + location.search") == "/accounts/nlp/budget?done=approve"
    assert "It is approved." in tab.evaluate("document.querySelector('[role=status]').innerText")
    assert "$8,000.00" in tab.evaluate("document.querySelector('.figures').innerText")


def test_pages_print_without_what_is_for_the_screen(tab: Any, signed_in: Callable[..., str]) -> None:
    address = signed_in(None)
    tab.go(f"{address}/accounts/nlp/budget")
    tab.call("Emulation.setEmulatedMedia", media="print")
    wanted = "input:not([type=hidden]), button, select, nav"
    seen = f"[...document.querySelectorAll('{wanted}')].filter(each => each.checkVisibility()).length"
    assert tab.evaluate(seen) == 0
    shown = tab.evaluate("document.body.innerText")
    assert "May be spent" in shown
    assert "Language modelling (USD)\nnone of its own" in shown
    printed = base64.b64decode(tab.call("Page.printToPDF", printBackground=True)["data"])
    assert printed.startswith(b"%PDF-")
    tab.call("Emulation.setEmulatedMedia", media="")


def test_signing_in_at_a_provider_on_another_site(
    tab: Any, serve: Callable[[Any], str], overspent: Any, campus: Any, tmp_path: Path, now: int
) -> None:
    """The cookies get through the ways to and from another site, with scripts switched off."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret:with/signs")
    app = create_app(
        Settings(
            database_url=overspent.engine.url.render_as_string(),
            site=overspent.app.state.settings.site,
            reconcile_every=0,
            watch_every=0,
            oidc_issuer=campus.url,
            oidc_audience="budgets",
            oidc_username_claim="uid",
            oidc_client_id="budgets-web",
            oidc_client_secret_file=secret,
        ),
        clock=lambda: now,
    )
    address = serve(app)
    tab.window(1200, 900)
    tab.go(f"{address}/accounts/nlp/budget")
    assert tab.axe() == []
    tab.follow("document.querySelector('a.button').click()")
    assert tab.evaluate("location.href") == f"{address}/accounts/nlp/budget"
    assert "nlp-head" in tab.evaluate("document.querySelector('.who').innerText")
    (cookie,) = tab.call("Network.getCookies")["cookies"]
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("hpctools_token", True, "Lax")
    # A link from elsewhere, as in an alert's mail, finds the session.
    tab.go(f"{campus.url}/keys")
    tab.follow(f"location.href = '{address}/alerts'")
    assert tab.evaluate("location.pathname") == "/alerts"
    tab.submit(".bar form")
    assert tab.evaluate("location.pathname") == "/login"
    assert tab.call("Network.getCookies")["cookies"] == []
    app.state.context.engine.dispose()

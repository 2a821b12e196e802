"""The pages in a real browser, with scripts switched off."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from api.auth.principal import Grant, Principal
from api.pages.budget import budget_page
from api.pages.frame import frame
from hpctools.budget.allowance import Period
from hpctools.budget.month import Month
from hpctools.budget.statement import Charge, Knowledge, statement
from hpctools.budget.tree import BudgetSite

pytestmark = pytest.mark.system
Serve = Callable[[Any], str]


@pytest.fixture
def signed_in(tab: Any, serve: Serve, november_service: Any) -> Callable[[str | None], str]:
    """Sign in with the form, as a person does."""

    def sign_in(account: str | None) -> str:
        address = serve(november_service.app)
        tab.window(1200, 1500)
        tab.go(f"{address}/")
        assert tab.evaluate("location.pathname") == "/login"
        tab.type_and_enter("#token", november_service.token(account))
        assert tab.evaluate("location.pathname") == "/"
        return address

    return sign_in


def test_a_head_signs_in_and_sees_the_month_at_a_glance(
    tab: Any, signed_in: Callable[[str | None], str], november_service: Any
) -> None:
    signed_in("nlp")
    statement = november_service.client("nlp").get("/v1/accounts/nlp/statement/2026-11").json()
    text = tab.evaluate("document.body.innerText")
    assert "Natural Language Processing" in text
    assert f"${float(statement['spent']):,.2f}" in text
    assert "$25,000.00" in text
    assert tab.evaluate("document.querySelectorAll('script').length") == 0
    chart = "document.querySelector('.wide svg').getBoundingClientRect()"
    assert tab.evaluate(f"{chart}.width") > 600
    assert tab.evaluate(f"{chart}.height") > 150
    assert tab.evaluate("getComputedStyle(document.querySelector('.narrow')).display") == "none"


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(
    tab: Any, signed_in: Callable[[str | None], str]
) -> None:
    signed_in("nlp")
    assert tab.evaluate("document.cookie") == ""
    (cookie,) = tab.call("Network.getCookies")["cookies"]
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")


def test_signing_out_forgets_the_cookie(tab: Any, signed_in: Callable[[str | None], str]) -> None:
    address = signed_in("nlp")
    tab.submit("form")
    tab.go(f"{address}/")
    assert tab.evaluate("location.pathname") == "/login"
    assert tab.call("Network.getCookies")["cookies"] == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1200])
def test_nothing_is_cut_off_and_text_has_contrast(
    tab: Any, signed_in: Callable[[str | None], str], width: int, dark: bool
) -> None:
    address = signed_in(None)
    tab.window(width, 900, dark=dark)
    tab.go(f"{address}/accounts/nlp")
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.evaluate("getComputedStyle(document.querySelector('.narrow')).display") == (
        "block" if width == 360 else "none"
    )
    assert tab.evaluate(_LOW_CONTRAST) == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1200])
def test_axe_finds_nothing(tab: Any, signed_in: Callable[[str | None], str], width: int, dark: bool) -> None:
    address = signed_in(None)
    tab.window(width, 900, dark=dark)
    for path in ("/", "/accounts/nlp", "/accounts/cv?month=2020-01", "/nowhere"):
        tab.go(f"{address}{path}")
        assert tab.axe() == []


def test_axe_finds_what_is_wrong(tab: Any) -> None:
    wrong = "<html><body><img src='x.png'><p style='color: #ccc; background: #fff'>pale</p></body></html>"
    tab.call("Page.setDocumentContent", frameId=tab.target, html=wrong)
    assert {each.split()[0] for each in tab.axe()} >= {"image-alt", "color-contrast", "html-has-lang"}


def test_a_name_without_a_break_does_not_widen_a_phones_page(
    tab: Any, site: BudgetSite, november: Month, now: int
) -> None:
    charge = Charge(november.start, "attributed", "cv-lab-a", "x" * 120, "USD", Decimal(1234567))
    known = Knowledge(now, november.start, True, {})
    shown = statement(site, site.by_name["cv-lab-a"], november, [charge], known)
    tab.window(360, 900)
    admin = Principal("x" * 40, (Grant(None, frozenset({"read"})),))
    around = frame(site, admin, "", (), Period(november.start, november.end), november.start)
    tab.call("Page.setDocumentContent", frameId=tab.target, html=budget_page(around, site, shown))
    assert "x" * 120 in tab.evaluate("document.body.textContent")
    assert tab.evaluate("document.documentElement.scrollWidth") == 360


def test_the_picture_for_the_documentation(
    tab: Any, signed_in: Callable[[str | None], str], pictures: Path | None
) -> None:
    address = signed_in(None)
    tab.window(1080, 1180, scale=1.5)
    tab.go(f"{address}/accounts/nlp")
    png = tab.screenshot(until="section[aria-labelledby=parts]")
    assert png.startswith(b"\x89PNG")
    if pictures is None:
        return
    (pictures / "budget-page.png").write_bytes(png)
    for name, width, height, dark, path in (
        ("site", 1080, 1180, False, "/"),
        ("dark", 1080, 1180, True, "/accounts/cv"),
        ("phone", 360, 2200, False, "/accounts/nlp"),
        ("phone-dark", 360, 2200, True, "/accounts/nlp-lab-a"),
        ("login", 700, 600, False, "/login"),
    ):
        tab.window(width, height, dark=dark)
        tab.go(f"{address}{path}")
        (pictures / f"check-{name}.png").write_bytes(tab.screenshot())


# Text whose contrast is below WCAG AA (4.5, or 3 from 24 px on). Backgrounds are opaque on our pages.
_LOW_CONTRAST = """
(() => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const f = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
  };
  const background = node => {
    for (; node; node = node.parentElement) {
      const colour = numbers(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest('[aria-hidden]')) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(numbers(style.color)), light(background(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) bad.push([node.innerText, ratio]);
  }
  return bad;
})()
"""

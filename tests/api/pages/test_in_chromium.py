"""The pages in a real browser, with scripts switched off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from api.services.reconcile import reconcile
from hpctools.budget.month import Month
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
        tab.type_and_enter("#token", november_service.token(account, name="jane.doe"))
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
    chart = "document.querySelector('.chart img')"
    assert tab.evaluate(f"{chart}.getBoundingClientRect().width") > 600
    assert tab.evaluate(f"{chart}.complete && {chart}.naturalWidth") > 600
    assert tab.evaluate(f"{chart}.currentSrc").endswith("size=wide")


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(
    tab: Any, signed_in: Callable[[str | None], str]
) -> None:
    signed_in("nlp")
    assert tab.evaluate("document.cookie") == ""
    (cookie,) = tab.call("Network.getCookies")["cookies"]
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")


def test_signing_out_forgets_the_cookie(tab: Any, signed_in: Callable[[str | None], str]) -> None:
    address = signed_in("nlp")
    tab.submit(".bar form")
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
    size = "narrow" if width < 600 else "wide"
    assert tab.evaluate("document.querySelector('.chart img').currentSrc").endswith(f"size={size}")
    assert tab.evaluate(_LOW_CONTRAST) == []


@pytest.mark.parametrize(("width", "dark"), [(360, True), (1200, False)])
@pytest.mark.slow
def test_axe_finds_nothing(tab: Any, signed_in: Callable[[str | None], str], width: int, dark: bool) -> None:
    address = signed_in(None)
    tab.window(width, 900, dark=dark)
    tab.go(f"{address}/accounts/nlp/jobs")
    job = tab.evaluate("document.querySelector('tbody th a').getAttribute('href')")
    for path in (*_PATHS, job):
        tab.go(f"{address}{path}")
        assert tab.axe() == []
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        assert tab.evaluate(_BROKEN_WORDS) == []


def test_the_keyboard_reaches_everything_and_the_focus_is_seen(
    tab: Any, signed_in: Callable[[str | None], str]
) -> None:
    address = signed_in("nlp")
    tab.go(f"{address}/")
    reachable = tab.evaluate(
        "[...document.querySelectorAll('a, button, select, summary, input, .scroll')]"
        ".filter(each => each.checkVisibility()).length"
    )
    reached = set()
    for _ in range(reachable + 1):
        tab.press("Tab")
        reached.add(tab.evaluate(_FOCUSED))
    assert len(reached - {None}) == reachable
    assert tab.evaluate("getComputedStyle(document.querySelector('.skip')).left") == "-999px"


def test_with_scripts_a_choice_is_shown_at_once_and_tables_sort(
    tab: Any, signed_in: Callable[[str | None], str]
) -> None:
    address = signed_in("nlp")
    tab.call("Emulation.setScriptExecutionDisabled", value=False)
    tab.go(f"{address}/accounts/nlp/jobs")
    cost = "document.querySelector('tbody tr td:last-child').innerText"
    dearest = tab.evaluate(cost)
    tab.evaluate("document.querySelector('thead th:last-child button').click()")
    tab.evaluate("document.querySelector('thead th:last-child button').click()")
    assert tab.evaluate("document.querySelector('thead th:last-child').ariaSort") == "ascending"
    assert tab.evaluate(cost) != dearest
    tab.choose("[name=state]", "FAILED")
    assert tab.evaluate("location.search").startswith("?period=2026-11&user=&state=FAILED")


def test_any_days_can_be_chosen_without_scripts(tab: Any, signed_in: Callable[[str | None], str]) -> None:
    address = signed_in("nlp")
    tab.go(f"{address}/")
    tab.evaluate("document.querySelector('[name=from]').value = '2026-11-03'")
    tab.evaluate("document.querySelector('[name=to]').value = '2026-11-09'")
    tab.submit(".any form")
    assert tab.evaluate("document.querySelector('#period').value") == "2026-11-03..2026-11-09"
    assert "3 November to 9 November 2026" in tab.evaluate("document.title")


def test_axe_finds_what_is_wrong(tab: Any) -> None:
    wrong = "<html><body><img src='x.png'><p style='color: #ccc; background: #fff'>pale</p></body></html>"
    tab.call("Page.setDocumentContent", frameId=tab.target, html=wrong)
    assert {each.split()[0] for each in tab.axe()} >= {"image-alt", "color-contrast", "html-has-lang"}


def test_a_name_without_a_break_does_not_widen_a_phones_page(
    tab: Any,
    signed_in: Callable[[str | None], str],
    november_service: Any,
    site: BudgetSite,
    jobs: Any,
    bills: Any,
) -> None:
    last = replace(jobs.records[-1], account="cv-lab-a", user="x" * 120, dbindex=10**6, job_id=10**6)
    jobs.records.append(last)
    reconcile(november_service.engine, site, Month(2026, 11), bills, jobs, last.start + 3600 * 9)
    address = signed_in("cv-lab-a")
    tab.window(360, 900)
    for path in ("/", f"/accounts/cv-lab-a/jobs?user={'x' * 120}"):
        tab.go(f"{address}{path}")
        assert "x" * 120 in tab.evaluate("document.body.textContent")
        assert tab.evaluate("document.documentElement.scrollWidth") == 360


def test_the_pictures_for_the_documentation(
    tab: Any, signed_in: Callable[[str | None], str], picture: Callable[[str, bytes], None]
) -> None:
    address = signed_in(None)
    tab.go(f"{address}/accounts/nlp/jobs")
    job = tab.evaluate("document.querySelector('tbody th a').getAttribute('href')")
    for name, width, dark, path, until in (
        ("page-overview", 1080, False, "/", "section[aria-labelledby=capacity]"),
        ("budget-page", 1080, False, "/accounts/nlp", "section[aria-labelledby=parts]"),
        ("page-lab-dark", 1080, True, "/accounts/nlp-lab-a", "section[aria-labelledby=waste]"),
        ("page-phone", 360, False, "/accounts/nlp", "section[aria-labelledby=parts]"),
        ("page-jobs", 1080, False, "/accounts/nlp/jobs", "tbody tr:nth-child(12)"),
        ("page-job", 1080, False, job, "main"),
        ("page-accounts", 1080, False, "/accounts", "main"),
        ("page-entries", 1080, False, "/accounts/nlp/entries?node_group=reserved", "tbody tr:nth-child(10)"),
    ):
        tab.window(width, 1180, dark=dark)
        tab.go(f"{address}{path}")
        png = tab.screenshot(until=until)
        assert png.startswith(b"\x89PNG")
        picture(name, png)


_PATHS = (
    "/",
    "/accounts",
    "/accounts/nlp",
    "/accounts/nlp-lab-a?period=2026-Q4",
    "/accounts/cv?month=2020-01",
    "/accounts/nlp/jobs",
    "/accounts/nlp/entries",
    "/accounts/nlp/bill?node_group=reserved",
    "/nowhere",
)
_FOCUSED = """
(() => {
  const found = document.activeElement;
  return found === document.body || found.id === 'main' ? null
    : [...document.querySelectorAll('*')].indexOf(found);
})()
"""
# Words of tables that stand on more than one line; a hyphen may end one.
_BROKEN_WORDS = """
(() => {
  const broken = [], range = document.createRange();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, cell = node.parentElement.closest('td, th');
    if (!cell || !cell.checkVisibility()) continue;
    for (const word of node.data.matchAll(/[^\\s-]+/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(each => each.top)).size > 1) broken.push(word[0]);
    }
  }
  return broken;
})()
"""
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

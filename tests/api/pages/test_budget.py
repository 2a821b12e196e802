from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from api.auth.principal import Grant, Principal
from api.pages.budget import budget_page, verdict
from api.pages.chart import Trend, trend_svg
from api.pages.frame import frame, trail_to
from api.pages.wording import money, percentage
from hpctools.budget.allowance import Period
from hpctools.budget.month import FIRST_MONTH, Month, day_start
from hpctools.budget.statement import Charge, Knowledge, Statement, statement
from hpctools.budget.tree import BudgetSite

NOVEMBER = Month(2026, 11)
ADMIN = Principal("admin", (Grant(None, frozenset({"admin", "read"})),))


def of(site: BudgetSite, amount: str, *, on: date = date(2026, 11, 11), account: str = "cv") -> Statement:
    """Ten days of the same cost; cv's budget is 18,000."""
    charges = [
        Charge(day, "attributed", f"{account}-lab-a", "<b>u</b>", "USD", Decimal(amount) / 10)
        for day in NOVEMBER.days[:10]
    ]
    known = Knowledge(day_start(on), date(2026, 11, 10), True, {})
    return statement(site, site.by_name[account], NOVEMBER, charges, known)


@pytest.mark.parametrize(
    ("amount", "tone", "text"),
    [
        (
            "6000",
            "good",
            "On track. At the pace of the last week the month ends at $18,000.00, $0.00 under budget.",
        ),
        ("6001", "warn", "At the pace of the last week the month ends at $18,003.00, $3.00 over budget."),
        ("18000.01", "bad", "Over budget by $0.01."),
    ],
)
def test_the_verdict_is_one_sentence(site: BudgetSite, amount: str, tone: str, text: str) -> None:
    said = verdict(of(site, amount))
    assert (said.tone, said.text) == (tone, text)


def test_the_verdict_of_a_past_month(site: BudgetSite) -> None:
    past = of(site, "6000", on=date(2026, 12, 5))
    assert verdict(past).text == "Ended within budget as far as the bill is known, $12,000.00 are left."
    final = replace(past, status="final")
    assert verdict(final).text == "Ended within budget, $12,000.00 were left."


def test_the_first_day_of_a_month_is_not_its_end(site: BudgetSite) -> None:
    charges = [Charge(NOVEMBER.start, "attributed", "cv", "u", "USD", Decimal(100))]
    evening = Knowledge(day_start(NOVEMBER.start) + 72000, NOVEMBER.start, True, {})
    said = verdict(statement(site, site.by_name["cv"], NOVEMBER, charges, evening))
    assert (said.tone, said.text) == (
        "plain",
        "$17,900.00 are left. It is too early to tell where the month ends.",
    )


def test_without_a_bill_nothing_is_said_of_the_budget(site: BudgetSite) -> None:
    waiting = statement(site, site.by_name["cv"], NOVEMBER, [], Knowledge(0, None, True, {}))
    assert verdict(waiting).text == "No bill has arrived for this month yet, so no costs are known."
    html = page(site, "cv", waiting)
    assert "not known yet" in html
    assert "$0.00" not in html
    assert "of the budget" not in html.split("</style>")[1].split("<details")[0]


def test_the_pace_of_a_young_month_is_not_called_that_of_a_week(site: BudgetSite) -> None:
    charges = [Charge(day, "attributed", "cv", "u", "USD", Decimal(100)) for day in NOVEMBER.days[:3]]
    young = Knowledge(day_start(date(2026, 11, 4)), date(2026, 11, 3), True, {})
    said = verdict(statement(site, site.by_name["cv"], NOVEMBER, charges, young))
    assert said.text == "On track. At the pace so far the month ends at $3,000.00, $15,000.00 under budget."


def test_the_verdict_of_other_cases(site: BudgetSite) -> None:
    lab = replace(of(site, "10"), account=site.by_name["cv-lab-a"], budget=None, left=None)
    assert verdict(lab).text == "No budget is set for this account; its department's budget covers it."
    department = replace(of(site, "10"), budget=None, left=None)
    assert verdict(department).text == "No budget is set for this account."
    none = statement(site, site.by_name["cv"], NOVEMBER, [], None)
    assert verdict(none).text.startswith("This month has not been reconciled")
    mixed = replace(of(site, "10"), other_currencies={"EUR": Decimal(3)})
    assert verdict(mixed).tone == "warn"


def test_before_the_first_month_there_is_no_link(site: BudgetSite) -> None:
    html = page(site, "cv", statement(site, site.by_name["cv"], FIRST_MONTH, [], None))
    assert 'href="?period=2000-02"' in html
    assert "1999" not in html


def page(site: BudgetSite, name: str, shown: Statement) -> str:
    period = Period(shown.month.start, shown.month.end)
    trail = trail_to(site, ADMIN, site.by_name[name], period)
    return budget_page(frame(site, ADMIN, "", trail, period, date(2026, 11, 21)), site, shown)


def test_the_page_shows_the_figures_and_where_to_go_next(site: BudgetSite) -> None:
    html = page(site, "cv", of(site, "6000"))
    text = re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<svg.*?</svg>|<[^>]+>", " ", html, flags=re.S))
    for shown in (
        "Computer Vision",
        "November 2026",
        "Spent $6,000.00 Budget $18,000.00 Left $12,000.00 Expected by the end $18,000.00",
        "33.3 % of the budget",
        "Data as of 11 November 2026, 00:00 UTC. The bill reaches to 10 November.",
        "Medical imaging cv-lab-a, led by cv-lead-a $6,000.00 100.0 %",
        "By 10 November, $6,000.00 had been spent; an even pace would be $6,000.00.",
    ):
        assert shown in text
    assert 'href="/accounts/cv-lab-a?period=2026-11"' in html
    assert 'href="/accounts/root?period=2026-11"' in html
    assert 'href="?period=2026-10"' in html
    assert 'href="?period=2026-12"' not in html
    assert "<script" not in html
    assert "http://" not in html.replace("http://www.w3.org/", "")
    assert "https://" not in html
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len(set(ids)) > 20
    references = re.findall(r'(?:href="#|url\(#|labelledby=")([^")]*)', html)
    assert set(references) <= set(ids)


def test_names_are_escaped(site: BudgetSite) -> None:
    lab = statement(
        site,
        site.by_name["cv-lab-a"],
        NOVEMBER,
        [Charge(NOVEMBER.start, "attributed", "cv-lab-a", "<b>u</b>", "USD", Decimal(1))],
        Knowledge(0, NOVEMBER.start, False, {}),
    )
    html = page(site, "cv-lab-a", lab)
    assert "&lt;b&gt;u&lt;/b&gt;" in html
    assert "<b>u</b>" not in html


def test_a_month_without_figures_is_still_a_page(site: BudgetSite) -> None:
    html = page(site, "cv", statement(site, site.by_name["cv"], NOVEMBER, [], None))
    assert "This month has not been reconciled yet" in html
    assert "<svg" not in html.split("</head>")[1]


def test_a_share_of_what_all_use_is_told_where_there_is_one(site: BudgetSite) -> None:
    charges = [
        Charge(NOVEMBER.start, "attributed", "cv-lab-a", "u", "USD", Decimal(300)),
        Charge(NOVEMBER.start, "shared", "cv-lab-a", "", "USD", Decimal(100)),
    ]
    known = Knowledge(day_start(date(2026, 11, 11)), date(2026, 11, 10), True, {})
    html = page(site, "cv", statement(site, site.by_name["cv"], NOVEMBER, charges, known))
    assert percentage(Decimal("75.0")) + " of it went to jobs" in html
    assert "<dt>Share of login nodes and the like</dt><dd>$100.00</dd>" in html
    without = page(site, "cv", of(site, "6000"))
    assert "Share of login nodes" not in without


def test_money_in_other_currencies_is_told_beside(site: BudgetSite) -> None:
    html = page(site, "cv", replace(of(site, "10"), other_currencies={"EUR": Decimal("3.5")}))
    assert "Besides, in other currencies: €3.50." in html


def test_the_chart_has_the_pages_colours_and_text() -> None:
    trend = Trend((Decimal(10), Decimal(30)), 30, Decimal(100), Decimal(450), "budget $100", "$")
    svg = trend_svg(trend, 8, 3)
    assert svg == trend_svg.__wrapped__(trend, 8, 3)
    assert ">budget $100</text>" in svg
    assert "var(--spent)" in svg
    assert "var(--over)" not in svg
    assert "DejaVu" not in svg
    assert not re.search(r"#0[1-5]0[1-5]0[1-5]", svg)
    over: Any = replace(trend, cumulative=(Decimal(101),))
    assert "var(--over)" in trend_svg(over, 8, 3)


@pytest.mark.parametrize(
    "trend",
    [
        Trend((), 28, None, None, "", "$"),
        Trend((Decimal(0),), 31, Decimal(0), Decimal(0), "b", ""),
        Trend((Decimal(-5), Decimal(10) ** 15), 31, None, None, "", "CHF "),
    ],
)
def test_extreme_trends_can_be_drawn(trend: Trend) -> None:
    assert trend_svg(trend, 3.6, 2.6).startswith('<svg aria-hidden="true"')


def test_amounts_as_people_read_them() -> None:
    minus = "\N{MINUS SIGN}"
    assert money(Decimal("1234.505"), "USD") == "$1,234.50"
    assert money(Decimal("-3"), "EUR") == f"{minus}€3.00"
    assert money(Decimal("-0.001"), "CHF") == "CHF 0.00"
    assert money(Decimal("1e6"), "JPY", 0) == "JPY 1,000,000"
    assert percentage(Decimal("-1.5")) == f"{minus}1.5\N{NO-BREAK SPACE}%"
    assert percentage(None) == "\N{EN DASH}"
